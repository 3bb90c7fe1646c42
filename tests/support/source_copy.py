"""Copies of the source tree, for tests that break one on purpose or leave a part of it out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from esd.native import engine

ROOT = Path(__file__).resolve().parents[2]

# The installed packages, from pyproject.toml.
PACKAGES: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
)


def copy_packages(destination: Path, packages: Iterable[str] = PACKAGES) -> None:
    """Copies Python packages. An editable installation keeps the compiled modules apart; the copy has them, too."""
    for package in packages:
        shutil.copytree(ROOT / package, destination / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for module in Path(engine.__file__).parent.glob("*.so"):
        shutil.copy(module, destination / "esd" / "native")


def run_python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a copy, whose packages it imports instead of the installed ones.

    An editable installation finds the source tree by a hook of site-packages; -S leaves the hooks out.
    """
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), *installed]), "COLUMNS": "200"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
