"""Random streams through the engine under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "engine_fuzz"  # stays, so that only what has changed is compiled again
# cmake and ninja are installed beside the interpreter.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_fuzz_under_sanitizers() -> None:
    for command in (
        ["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", BUILD, "--target", "engine_fuzz"],
        [BUILD / "native" / "engine" / "engine_fuzz", "47", "1"],
    ):
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=110, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
