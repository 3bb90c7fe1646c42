"""A reader may wait for its source for ever, and `esd train` can still be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

# As a package of one's own would be installed: samples as those of Criteo are, and then what a pipe brings.
READER = """
from esd.data import open_data
from esd.data.derived import DerivedDataset

class Waiting(DerivedDataset):
    fingerprint = "waiting"

    def __init__(self, request):
        super().__init__(open_data("synthetic:criteo?samples=300", 100, seed=0))
        self._pipe = request.argument

    def __iter__(self):
        yield from self._source
        with open(self._pipe, "rb") as pipe:
            pipe.read()
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder to import from that has the reader `waiting:PIPE`."""
    installed = tmp_path / "waiting-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: waiting\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[esd.readers]\nwaiting = waiting:Waiting\n")
    (tmp_path / "waiting.py").write_text(READER)
    return tmp_path


@contextmanager
def held_open(pipe: Path) -> Iterator[BinaryIO]:
    """Waits until a process opens a pipe, from which it will never read anything."""
    with pipe.open("wb", buffering=0) as written:
        yield written


@pytest.mark.parametrize(
    ("number", "evaluated"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["trained", "held out"]
)
def test_a_run_whose_samples_do_not_come_ends_when_it_is_told_to(
    packages: Path, number: signal.Signals, evaluated: bool
) -> None:
    pipe = packages / "pipe"
    os.mkfifo(pipe)
    data, judged = f"waiting:{pipe}", "synthetic:criteo?samples=300"
    if evaluated:
        data, judged = judged, data
    command = [
        sys.executable, "-m", "esd.cli", "train", "--workers", "1", "--data", data, "--evaluate", judged,
        "--batch", "100", "--dim", "4", "--cache-rows", "9000", "--out", str(packages / "out"),
    ]  # fmt: skip
    paths = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH", "")]))
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE) as running:
        with held_open(pipe):
            running.send_signal(number)
            assert running.wait(110) == 128 + number
        assert running.stderr is not None
        assert b"Traceback" not in running.stderr.read()
