"""Builds programs and libraries of `native` that the installed package does not have."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LONGEST_SECONDS = 900  # the engine with sanitizers, on a machine that does other things


@cache
def built(target: str, folder: str) -> Path:
    """Returns the program or library of a target in native/`folder`, after building it.

    Every target has its own build folder, which stays. A later call compiles only the files that have changed, and two
    processes can build two targets at once.

    Raises:
        CalledProcessError: The target does not build; the compiler's messages are on standard error.
        TimeoutExpired: The build takes more than 900 seconds.
    """
    build = ROOT / "build" / target
    # cmake and ninja are in the folder of the interpreter.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(build), "--target", target],
    ):
        # Ninja prints errors to its standard output, which would be the caller's.
        subprocess.run(command, env=environment, stdout=sys.stderr.fileno(), check=True, timeout=_LONGEST_SECONDS)
    return build / "native" / folder / target
