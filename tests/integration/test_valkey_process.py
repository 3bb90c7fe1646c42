"""The process of a local run's Valkey server tells how much of its file is loaded until the server is ready."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from redis import Redis

from esd.run.services import held_address

# Valkey answers others once in 1,024 commands. These take about half a millisecond each.
_SLOW = b"local n = 0 for i = 1, 50000 do n = n + i end redis.call('INCR', 'slow')"
_COMMANDS = 4096


def write_file(directory: Path) -> int:
    """Writes an append-only file as a Valkey leaves it behind; returns its size in bytes."""
    files = directory / "appendonlydir"
    files.mkdir(parents=True)
    path = files / "appendonly.aof.1.incr.aof"
    path.write_bytes(_COMMANDS * (b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(_SLOW), _SLOW)))
    (files / "appendonly.aof.manifest").write_text(f"file {path.name} seq 1 type i\n")
    return path.stat().st_size


def test_it_tells_how_much_of_its_file_is_loaded(tmp_path: Path) -> None:
    size = write_file(tmp_path)
    with held_address() as address:
        command = [sys.executable, "-m", "esd.run.valkey_process", address, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                told = []
                while "address" not in (line := json.loads(process.stdout.readline())):
                    told.append(line["progress"])
                assert line["address"] == address
                with Redis.from_url(f"redis://{address}") as client:
                    assert int(client.get("slow")) == _COMMANDS
            finally:
                process.terminate()
    steps = [re.fullmatch(r"(\d+) of (\d+) KiB of its file are loaded", each) for each in told]
    loaded = [int(step[1]) for step in steps if step]
    assert len(loaded) == len(told) > 0
    assert loaded == sorted(loaded)
    assert 0 < loaded[-1] <= size >> 10
    assert {step[2] for step in steps if step} == {str(size >> 10)}
