"""`esd serve` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "esd.cli", "serve", *map(str, arguments)]


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ESD_")} | dict(variables)


@contextmanager
def serving(*arguments: object, **variables: str) -> Iterator[dict[str, Any]]:
    """A service that runs; gives its ready line."""
    process = subprocess.Popen(command(*arguments), env=environment(variables), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=110) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
