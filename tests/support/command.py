"""Runs the `esd` command."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from unittest import mock

from esd.cli.main import main


def esd(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The finished command with its output."""
    command = [sys.executable, "-m", "esd.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def esd_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process: the services that the command starts are forks, too (tests/support/warm_python.py)."""
    code = 0
    on_sigterm = signal.getsignal(signal.SIGTERM)
    with (
        mock.patch.object(sys, "argv", ["esd", *arguments]),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as told,
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            signal.signal(signal.SIGTERM, on_sigterm)
    return subprocess.CompletedProcess(["esd", *arguments], code, printed.getvalue(), told.getvalue())
