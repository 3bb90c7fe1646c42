"""Builds programmes and libraries of `native` that the package does not have, when they are first asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LONGEST_SECONDS = 240


@cache
def built(target: str, folder: str) -> Path:
    """Returns the programme or library of a target of native/`folder`.

    Every target has a build folder of its own, which stays: only what has changed is compiled again, and two processes
    may build two targets at once.

    Raises:
        CalledProcessError: it does not build; the compiler has said why.
        TimeoutExpired: nor fail to in time.
    """
    build = ROOT / "build" / target
    # cmake and ninja are installed beside the interpreter.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(build), "--target", target],
    ):
        # Ninja tells errors on its standard output, which is the caller's.
        subprocess.run(command, env=environment, stdout=sys.stderr.fileno(), check=True, timeout=_LONGEST_SECONDS)  # noqa: S603
    return build / "native" / folder / target
