"""Flushes and snapshots are as long as the caches, so each must take its bytes once and return them."""

from pathlib import Path

import numpy as np
import pytest

from esd.native.engine import Engine
from esd.services.runtime.memory import return_freed_memory

ROWS = 1_000_000


def status(key: str) -> int:
    """Returns a size of this process in bytes: `VmRSS` is resident now, `VmHWM` the most since `reset_peak`."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return 1024 * int(line.split()[1])


def reset_peak() -> None:
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")


@pytest.fixture
def engine() -> Engine:
    """An engine whose worker caches `ROWS` rows that the parameter server lacks."""
    engine = Engine([ROWS], "lru")
    engine.prepare(np.arange(ROWS, dtype=np.uint64).reshape(-1, 1))
    engine.commit(np.zeros(ROWS, np.int32))
    return engine


def test_a_flush_returns_its_memory(engine):
    reset_peak()
    before = status("VmRSS")
    (flush,) = engine.flush()
    assert len(flush["rows"]["ids"]) == ROWS
    del flush
    return_freed_memory()
    assert status("VmRSS") - before < 10 * ROWS  # the columns have 20 bytes per row, and the list of owed rows 40


def test_a_snapshot_is_written_where_it_stays(engine):
    engine.flush()
    reset_peak()
    before = status("VmRSS")
    snapshot = engine.snapshot()
    assert len(snapshot) > 40 * ROWS
    assert status("VmHWM") - before < 1.3 * len(snapshot)
