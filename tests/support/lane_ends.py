"""Both ends of lanes as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lane_end(*options: str) -> Iterator[dict[str, str]]:
    """An end of lanes; gives its ready line."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}
    command = [sys.executable, "-m", "esd.cli", "serve", "lanes", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def lane_ends(target: str) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """The near and the far end of lanes to a service; gives their ready lines."""
    with lane_end("--to", target) as far, lane_end("--via", far["address"], "--lanes", "3") as near:
        yield near, far
