"""Random streams through the engine under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess

import pytest

from testbed.native_targets import built

pytestmark = pytest.mark.timeout(1500)  # the engine is compiled here


def test_fuzz_under_sanitizers() -> None:
    command = [built("engine_fuzz", "engine"), "47", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
