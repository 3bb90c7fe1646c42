"""`import esd` brings every documented name, and nothing that takes long."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import esd

ROOT = Path(__file__).parents[2]
CLIENTS_PAGE = (ROOT / "docs" / "clients.md").read_text()

# What `import esd` has no need of: a network, settings, kernels, tensors.
SLOW = ("torch", "grpc", "google.protobuf", "pydantic", "esd.native", "redis", "prometheus_client", "typer", "rich")


def python(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def loaded_after(statement: str) -> set[str]:
    """Which of SLOW a program has imported after a statement."""
    code = f"import json, sys\nimport esd\n{statement}\nprint(json.dumps([m for m in {SLOW!r} if m in sys.modules]))"
    return set(json.loads(python(code)))


@pytest.mark.parametrize("name", esd.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(esd, name) is not None
    assert name in dir(esd)


def test_every_public_name_is_documented_and_every_documented_one_public() -> None:
    """In the page's table of names, or by a use in its text: DispatcherClient's methods have a table of their own."""
    table, _, _ = CLIENTS_PAGE.partition("| names |")[2].partition("\n\n")
    listed = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    used = set(re.findall(r"\besd\.(\w+)\(", CLIENTS_PAGE)) | set(re.findall(r"`(\w+Client)`", CLIENTS_PAGE))
    assert listed | used == set(esd.__all__)


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="'SyncDispatcherClient'"):
        _ = esd.SyncDispatcherClient


def test_the_page_of_clients_and_the_worker_of_ones_own_use_the_face_alone() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", CLIENTS_PAGE, re.DOTALL))
    for text in (blocks, (ROOT / "examples" / "own_worker.py").read_text()):
        imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
        assert imported - set(sys.stdlib_module_names) == {"esd", "numpy"}


def test_the_import_is_cheap() -> None:
    assert loaded_after("") == set()


def test_what_is_slow_comes_with_the_first_use_and_torch_with_models_alone() -> None:
    assert "grpc" in loaded_after("esd.DispatcherClient")
    assert loaded_after("esd.hybrid_dis([[1, 2]], [1, 0])") == {"esd.native"}
    with_torch = ("Jagged", "Model", "ModelInputs", "Session", "SharedLists", "Step", "TrainedModel")
    others = [name for name in esd.__all__ if name not in with_torch]
    assert "torch" not in loaded_after(f"[getattr(esd, name) for name in {others}]")
    assert "torch" in loaded_after("esd.Model")
