"""Random streams through the engine under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess

from testbed.native_targets import built


def test_fuzz_under_sanitizers() -> None:
    command = [built("engine_fuzz", "engine"), "47", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
