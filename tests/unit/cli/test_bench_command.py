"""`esd bench` runs the benchmarks of a source tree; without one it names the remedy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_copy import PACKAGES, copy_packages, run_python


def test_the_installed_package_has_no_benchmarks_and_says_where_they_are(tmp_path: Path) -> None:
    assert "benchmarks" not in PACKAGES
    copy_packages(tmp_path)
    finished = run_python(tmp_path, "-m", "esd.cli", "bench", "dispatch")
    assert finished.returncode == 1
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert "source tree" in line
    assert "make setup" in line
    listed = run_python(tmp_path, "-m", "esd.cli", "--help")
    assert "simulate" in listed.stdout
    assert "bench" not in listed.stdout


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_a_source_tree_runs_them_from_anywhere(tmp_path: Path, arguments: list[str]) -> None:
    """In the way of an editable installation: the packages are found elsewhere, the benchmarks beside them."""
    command = [sys.executable, "-P", "-m", "esd.cli", "bench", *arguments]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    shown = finished.stdout + finished.stderr
    assert "Usage: esd bench" in shown
    assert all(name in shown for name in ("dispatch", "solver", "alpha"))
