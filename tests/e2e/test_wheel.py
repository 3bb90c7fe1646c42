"""The wheel: one name in site-packages, with any names of the user's own folders, and types that reach the user."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.e2e.compose import ROOT

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
    (wheel,) = (ROOT / "build/wheels/esd").glob("*.whl")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", wheel], check=True)
    assert {path.name.partition("-")[0] for path in _site_packages(python).iterdir()} == {"esd", "esd_train"}
    # Files that extend the path are not read in a folder that such a file names: the editable installation stays out.
    (_site_packages(python) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def _site_packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python3*/site-packages")
    return folder


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


def test_it_trains_among_a_users_own_names(installed: Path, own_folder: Path) -> None:
    command = "train --data events.csv --schema events.toml --workers 2 --batch 10 --dim 4 --cache-rows 40 --json"
    finished = subprocess.run(
        [installed, "-m", "esd.cli", *command.split()], cwd=own_folder, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["iterations"] == 20


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
