"""The CUDA kernels' steps on real threads, under the thread sanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "cuda_races"  # stays, so that only what has changed is compiled again
# cmake and ninja are installed beside the interpreter.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_no_step_races_with_itself() -> None:
    for command in (
        ["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", BUILD, "--target", "cuda_races"],
        [BUILD / "native" / "cuda" / "cuda_races", "24"],
    ):
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=110, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
    assert "24 problems, 0 failed" in result.stdout
