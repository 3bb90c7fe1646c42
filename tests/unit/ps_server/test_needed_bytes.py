"""The bytes that `esd plan` counts for a row at a parameter server and in Redis, held to small measured tables."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from redis import Redis

from esd.native import rows as native
from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.by_url import open_store
from esd.ps_server.stores.redis.connection import RedisAccess
from esd.ps_server.stores.redis.room import redis_room
from esd.services.domain.footprint import (
    CHECKPOINT_COPIES,
    CHECKPOINT_ROW_BYTES,
    NEW_ROW_BYTES,
    STORED_ROW_BYTES,
    filter_bytes,
    redis_bytes,
)
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from testbed.redis_server import RedisServer, redis_server

# Grows a table in a process of its own; prints the bytes that its memory grew by, then those of its directory.
_GROWN = """
import sys
from pathlib import Path
import numpy as np
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

directory, dimension, rows, cut = sys.argv[1], *map(int, sys.argv[2:])
spec = TableSpec("t", dimension, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD), 0, 0.1)
store = DirectoryStore(Path(directory), Shard()) if directory else MemoryStore()
store.claim(exclusive=True)
store.create(spec)
table = Table(spec, store.open(spec), Shard())
table.history.begin_epoch(1, b"t", takes_over=False)
rng, block = np.random.default_rng(0), 20_000
values, ones = rng.random((block, spec.row_width), np.float32), np.ones(block, np.int64)

def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])

def push(first):
    table.push_rows(RowBlock(np.arange(first, first + block, dtype=np.uint64), ones, values), 1)

push(0)
if cut:
    table.history.cut(1, 1, 0, 1)
    push(block)  # what a cut takes once is not counted
before = resident()
for first in range(2 * block, 2 * block + rows, block):
    push(first)
memory = resident() - before
if directory:
    table.history.cut(1, 2, 0, 1)
    table.history.save(1, 2)
    table.history.commit(1, 2, b"", 2)
print(memory, sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file()) if directory else 0)
"""
ROWS = 400_000
MARGIN = 0.2  # of the whole row: by how much the counted bytes may be off, upwards; they are never far too few


def table(dimension: int) -> TableSpec:
    return TableSpec(f"t{dimension}", dimension, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD), 0, 0.1)


def grown(dimension: int, *, directory: str = "", cut: bool = False) -> tuple[float, float]:
    arguments = [directory, str(dimension), str(ROWS), str(int(cut))]
    done = subprocess.run([sys.executable, "-c", _GROWN, *arguments], capture_output=True, text=True, check=True)
    memory, disk = map(int, done.stdout.split())
    return memory / ROWS, disk / ROWS


@pytest.mark.parametrize("dimension", [16, 64])
@pytest.mark.parametrize("cut", [False, True])
def test_memory_of_a_parameter_server(dimension: int, cut: bool) -> None:
    counted = table(dimension).row_bytes + STORED_ROW_BYTES + cut * NEW_ROW_BYTES
    measured, _ = grown(dimension, cut=cut)
    assert (1 - MARGIN) * counted < measured < 1.1 * counted


def test_disk_of_a_checkpoint_directory(tmp_path: Path) -> None:
    """All rows are new here, so the directory has the least number of copies."""
    counted = table(16).row_bytes + CHECKPOINT_ROW_BYTES
    _, measured = grown(16, directory=str(tmp_path))
    assert 0.9 * counted < measured < CHECKPOINT_COPIES * counted


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.mark.parametrize("dimension", [4, 16, 32, 128])
def test_memory_of_redis(redis: RedisServer, dimension: int) -> None:
    spec, rows = table(dimension), 60_000
    store = open_store(redis.url, Shard(), timeout_seconds=20)
    client = Redis.from_url(redis.url)
    try:
        store.claim(exclusive=True)
        store.create(spec)
        stored = store.open(spec).rows
        before = client.info("memory")["used_memory"]
        for ids in np.array_split(np.random.default_rng(dimension).integers(0, 2**63, rows, np.uint64), 6):
            stored.write_newer(RowBlock(ids, np.ones(len(ids), np.int64), np.ones((len(ids), spec.row_width), "f4")))
        measured = (client.info("memory")["used_memory"] - before) / rows
    finally:
        client.close()
        store.release()
        store.close()
    assert 0.85 * redis_bytes(spec) < measured < 1.1 * redis_bytes(spec)


@pytest.mark.parametrize("rows", [1, 65_000, 300_000, 1_300_000, 2_000_000])
def test_memory_of_the_filter_of_written_rows(rows: int) -> None:
    written = native.FieldFilter()
    written.add(np.random.default_rng(rows).integers(0, 2**64, rows, np.uint64))
    assert written.memory_bytes == filter_bytes(rows)


def test_the_filter_of_written_rows_stops_growing() -> None:
    assert filter_bytes(90_000_000) == filter_bytes(10**10) < 180e6


def test_the_room_of_redis_is_what_its_maxmemory_leaves(redis: RedisServer) -> None:
    access = RedisAccess()
    unlimited = redis_room(redis.url, 20, access)
    assert (unlimited.limited, unlimited.address) == (False, redis.url.removeprefix("redis://").partition("/")[0])
    redis.cli("config", "set", "maxmemory", "100mb")
    limited = redis_room(redis.url, 20, access)
    redis.cli("config", "set", "maxmemory", "1mb")
    full = redis_room(redis.url, 20, access)
    redis.cli("config", "set", "maxmemory", "0")
    assert limited.limited
    assert 0 < limited.free_bytes < 100 * 2**20 < unlimited.free_bytes
    assert full.free_bytes in range(2**20)
