"""`esd bench ps` moves real rows to and from real servers, and tells both ends' processor time apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def test_rows_move_to_and_from_every_store() -> None:
    arguments = "--dims 8 --megabytes 0.2 --repetitions 1 --json"
    command = [sys.executable, "-m", "esd.cli", "bench", "ps", *arguments.split()]
    patient = os.environ | {"ESD_PS_STORE_TIMEOUT_SECONDS": "60"}  # with a Redis on a machine that stands still
    finished = subprocess.run(command, env=patient, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stderr
    results = json.loads(finished.stdout)["results"]
    assert [(each["store"], each["dimension"]) for each in results] == [("memory", 8), ("directory", 8), ("redis", 8)]
    for each in results:
        for moved in (each["pushes"], each["pulls"], each["pairs"]):
            assert all(figure > 0 for figure in moved.values())
