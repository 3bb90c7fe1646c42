"""Runs the `esd` command."""

from __future__ import annotations

import subprocess
import sys


def esd(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The finished command with what it printed."""
    command = [sys.executable, "-m", "esd.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
