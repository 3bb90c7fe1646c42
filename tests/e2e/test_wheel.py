"""The wheel: one name in site-packages, with any names of the user's own folders, and types that reach the user.

Without torch it has all but training, and with it a user trains from any folder, with nothing of a source tree.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.e2e.compose import ROOT

pytestmark = pytest.mark.timeout(900)  # pip installs 30 packages

OURS = ("dispatcher", "protos", "ps_server", "services", "worker")  # the repository's folders, a user's own names, too

PROGRAM = """\
import numpy as np
from numpy.typing import NDArray

import esd


def cheapest(costs: NDArray[np.float64]) -> float:
    return esd.hybrid_dis(costs, [1] * len(costs)).cost


schema = esd.Schema(label="clicked", ids=("user", "item"))
batches: list[esd.SampleBatch] = list(esd.read("events.csv", schema, batch_size=300))
print(cheapest(np.array([[1.0, 2.0], [2.0, 1.0]])), len(batches))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel in it and nothing else; the dependencies are this Python's."""
    python = _environment(tmp_path_factory.mktemp("environment"))
    _pip(python, "install", "--no-deps", "--no-index", _wheel())
    assert {path.name.partition("-")[0] for path in _site_packages(python).iterdir()} == {"esd", "esd_train"}
    # Files that extend the path are not read in a folder that such a file names: the editable installation stays out.
    (_site_packages(python) / "dependencies.pth").write_text(str(Path(np.__file__).parents[1]))
    return python


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which pip has installed the wheel with its dependencies, and the extra tables."""
    python = _environment(tmp_path_factory.mktemp("without-torch"))
    _pip(python, "install", "--no-index", "--find-links", ROOT / "build/wheels/service", f"{_wheel()}[tables]")
    return python


def _environment(folder: Path) -> Path:
    venv.create(folder)
    return folder / "bin" / "python"


def _wheel() -> Path:
    (wheel,) = (ROOT / "build/wheels/esd").glob("*.whl")
    return wheel


def _pip(python: Path, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check")
    without_settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    finished = subprocess.run(
        [*map(str, (*pip, *arguments))], capture_output=True, text=True, check=False,
        env=without_settings | {"PIP_CONFIG_FILE": os.devnull},
    )  # fmt: skip
    assert finished.returncode == 0 or not check, finished.stderr
    return finished


def _site_packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python3*/site-packages")
    return folder


def _esd(python: Path, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "esd.cli", *command.split()], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
    )  # fmt: skip


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A user's folder with files of their own by the names of the repository's top-level folders."""
    for name in OURS:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this is a file of the user')\n")
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").touch()
    (tmp_path / "events.csv").write_text("user,item,clicked\n" + "ada,book,1\nbob,lamp,0\n" * 200)
    (tmp_path / "events.toml").write_text('label = "clicked"\nids = ["user", "item"]\n')
    return tmp_path


OPTIONS = "--schema events.toml --workers 2 --batch 10 --dim 4 --cache-rows 40 --json"


def test_it_trains_among_a_users_own_names_and_writes_nothing_to_its_own_folder(
    installed: Path, own_folder: Path
) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in _site_packages(installed).rglob("*")}

    rows = {"user": ["ada", "bob"] * 200, "item": ["book", "lamp"] * 200, "clicked": [1, 0] * 200}
    pyarrow.parquet.write_table(pa.table(rows), own_folder / "events.parquet")
    before = files()
    finished = _esd(installed, f"train --data events.parquet {OPTIONS} --out out", own_folder)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["iterations"] == 20
    assert (own_folder / "out" / "model").is_dir()
    assert files() == before


def test_without_torch_all_but_training_works(without_torch: Path, own_folder: Path) -> None:
    there = {path.name for path in _site_packages(without_torch).iterdir()}
    assert {"esd", "pyarrow", "grpc"} <= there
    assert not {"torch", "nvidia", "triton"} & there
    for command in ("--help", "--version", f"simulate --data events.csv {OPTIONS}", "data inspect events.csv"):
        finished = _esd(without_torch, command, own_folder)
        assert finished.returncode == 0, finished.stderr
    program = own_folder / "program.py"
    program.write_text(PROGRAM)
    said = subprocess.run([without_torch, program], cwd=own_folder, capture_output=True, text=True, check=True).stdout
    assert said == "2.0 2\n"
    refused = _esd(without_torch, f"train --data events.csv {OPTIONS}", own_folder)
    assert refused.returncode == 1
    assert "needs torch, which is not installed: pip install 'esd-train[train]'" in refused.stderr


def test_the_command_that_brings_torch_looks_for_no_package_of_ours(without_torch: Path) -> None:
    """An installed package is found by its name, so an error may name its extras: no index need have the package."""
    refused = _pip(without_torch, "install", "--no-index", "esd-train[train]", check=False)
    (missing,) = re.findall(r"No matching distribution found for (\S+)", refused.stderr)
    assert missing in ("cloudpickle>=3", "torch>=2.13")


def test_the_help_has_no_command_of_a_source_tree(without_torch: Path, own_folder: Path) -> None:
    listed = re.findall(r"^│ (\w+)  ", _esd(without_torch, "--help", own_folder).stdout, re.MULTILINE)
    assert "train" in listed
    assert "bench" not in listed


def test_a_users_program_runs_and_is_typed(installed: Path, own_folder: Path) -> None:
    program = own_folder / "program.py"
    program.write_text(PROGRAM)
    said = subprocess.run([installed, program], cwd=own_folder, capture_output=True, text=True, check=True).stdout
    assert said == "2.0 2\n"
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", own_folder, "--python-executable", installed]
    checked = subprocess.run([*mypy, program], cwd=own_folder, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    program.write_text(PROGRAM.replace("len(costs))", "len(costs), alpha='all')"))
    checked = subprocess.run([*mypy, program], cwd=own_folder, capture_output=True, text=True, check=False)
    assert 'Argument "alpha" to "hybrid_dis" has incompatible type "str"' in checked.stdout
