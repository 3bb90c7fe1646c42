"""Builds what native/yardsticks has, when it is first asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "yardsticks"  # stays, so that only what has changed is compiled again


@cache
def built(target: str) -> Path:
    """Returns the programme or library of a target.

    Raises:
        CalledProcessError: it does not build; the compiler has said why.
    """
    # cmake and ninja are installed beside the interpreter.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(BUILD), "--target", target],
    ):
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    return BUILD / "native" / "yardsticks" / target
