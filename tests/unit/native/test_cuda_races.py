"""The CUDA kernels' steps on real threads, under the thread sanitizer."""

from __future__ import annotations

import subprocess

from testbed.native_targets import built


def test_no_step_races_with_itself() -> None:
    command = [built("cuda_races", "cuda"), "24"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "24 problems, 0 failed" in result.stdout
