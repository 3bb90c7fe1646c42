"""Layouts of rows in Redis: `python -m benchmarks.redis_layouts`.

Pushes new rows, pushes them again at the next version and pulls them, in each layout, on a Redis of its own with an
append-only file. The layout in use is measured through the store; of the others only the rows are there, with the same
checks: a fence, versions that rise, counters of rows. Prints and writes Redis' processor time and bytes per row.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from redis import Redis

from esd.native.rows import addresses
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import RowStore
from esd.ps_server.stores.by_url import open_store
from esd.ps_server.stores.redis import layout
from esd.ps_server.stores.redis.connection import Command
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from testbed.redis_server import redis_server

RESULTS = Path(__file__).parent / "results" / "redis_layouts.json"

_ROWS_PER_CALL = 26_000  # distinct ids of 1,024 samples with 26 fields
_ROWS_PER_COMMAND = 400
_BUCKET_ROWS = 8

_FENCE = b"if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return redis.error_reply('ESDTAKEN') end\n"

# A row is a key, and is read and written alone: the layout before this one. KEYS[2...]: rows, ARGV[3...]: values.
_ONE_BY_ONE = (
    _FENCE
    + b"""
local rows, trainings = 0, 0
for i = 2, #KEYS do
  local stored, version = redis.call('GETRANGE', KEYS[i], 0, 7), struct.unpack('<i8', ARGV[i + 1])
  local before = #stored == 8 and struct.unpack('<i8', stored) or 0
  if before < version then
    redis.call('SET', KEYS[i], ARGV[i + 1])
    rows, trainings = rows + (#stored == 0 and 1 or 0), trainings + version - before
  end
end
redis.call('HINCRBY', 'n', 'rows', rows) redis.call('HINCRBY', 'n', 'trainings', trainings)
"""
)

# A row is a key, and all rows of a call are read by one command and written by one. Arguments as above.
_TOGETHER = (
    _FENCE
    + b"""
local old, new, n, rows, trainings = redis.call('MGET', unpack(KEYS, 2)), {}, 0, 0, 0
for i = 2, #KEYS do
  local stored, version = old[i - 1], struct.unpack('<i8', ARGV[i + 1])
  local before = stored and struct.unpack('<i8', stored) or 0
  if before < version then
    new[n + 1], new[n + 2], n = KEYS[i], ARGV[i + 1], n + 2
    rows, trainings = rows + (stored and 0 or 1), trainings + version - before
  end
end
if n > 0 then redis.call('MSET', unpack(new)) end
redis.call('HINCRBY', 'n', 'rows', rows) redis.call('HINCRBY', 'n', 'trainings', trainings)
"""
)

# A row is a field of a hash, named by its id. KEYS[2...]: a hash per row, in runs; ARGV[3...]: counts of the runs,
# packed; fields; values.
_HASHES = (
    _FENCE
    + b"""
local at, total, rows, trainings = 3, (#ARGV - 3) / 2, 0, 0
for k = 2, #KEYS do
  local count = struct.unpack('<I2', ARGV[3], 2 * k - 3)
  local old, new, n = redis.call('HMGET', KEYS[k], unpack(ARGV, at + 1, at + count)), {}, 0
  for i = 1, count do
    local stored, value = old[i], ARGV[at + total + i]
    local version, before = struct.unpack('<i8', value), stored and struct.unpack('<i8', stored) or 0
    if before < version then
      new[n + 1], new[n + 2], n = ARGV[at + i], value, n + 2
      rows, trainings = rows + (stored and 0 or 1), trainings + version - before
    end
  end
  if n > 0 then redis.call('HSET', KEYS[k], unpack(new)) end
  at = at + count
end
redis.call('HINCRBY', 'n', 'rows', rows) redis.call('HINCRBY', 'n', 'trainings', trainings)
"""
)

# Some rows share a string, each with its id before it; the number of strings fits the number of rows. KEYS[2...]: the
# string of each row, distinct; ARGV[3...]: ids and values together.
_BUCKETS = (
    _FENCE
    + b"""
local old, new, n, rows, trainings = redis.call('MGET', unpack(KEYS, 2)), {}, 0, 0, 0
for i = 2, #KEYS do
  local bucket, value = old[i - 1] or '', ARGV[i + 1]
  local id, size, start, before = string.sub(value, 1, 8), #value, 1, 0
  while true do
    start = string.find(bucket, id, start, true)
    if not start or (start - 1) % size == 0 then break end
    start = start + 1
  end
  local version = struct.unpack('<i8', value, 9)
  if start then
    before = struct.unpack('<i8', bucket, start + 8)
    bucket = string.sub(bucket, 1, start - 1) .. value .. string.sub(bucket, start + size)
  else
    bucket, rows = bucket .. value, rows + 1
  end
  if before < version then
    new[n + 1], new[n + 2], n = KEYS[i], bucket, n + 2
    trainings = trainings + version - before
  end
end
if n > 0 then redis.call('MSET', unpack(new)) end
redis.call('HINCRBY', 'n', 'rows', rows) redis.call('HINCRBY', 'n', 'trainings', trainings)
"""
)


class Push(Protocol):
    """Pushes rows at a version."""

    def __call__(self, ids: NDArray[np.uint64], version: int) -> None:
        """Pushes the rows of distinct ids, uint64 [r]."""


Pull = Callable[[NDArray[np.uint64]], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one layout.

    Attributes:
        layout: description of the layout.
        values: floats of a row.
        rows: number of stored rows.
        new, known, read: microseconds of Redis' processor time to push a new row, a known one, and to pull one.
        bytes: Redis' memory per row.
        file_bytes: bytes of the append-only file per push of a known row.
    """

    layout: str
    values: int
    rows: int
    new: float
    known: float
    read: float
    bytes: float
    file_bytes: float


class Rows:
    """The keys and values of rows outside the store."""

    def __init__(self, client: Redis, width: int, total: int) -> None:
        self._client = client
        self._width = width
        self._buckets = total // _BUCKET_ROWS
        client.hset("fence", "0", "token")

    def keys(self, ids: NDArray[np.uint64]) -> list[bytes]:
        """A key per row."""
        partitions = layout.partition_keys("e", "embeddings")
        return [
            partitions[place >> 2] + b":" + row.tobytes()
            for place, row in zip(addresses(ids)[0].tolist(), ids, strict=True)
        ]

    def value(self, version: int) -> bytes:
        """The value of any row at a version: version, floats, checksum."""
        return struct.pack("<q", version) + bytes(4 * self._width + 4)

    def push_keys(self, script: bytes) -> Push:
        """A push of rows that are keys."""

        def push(ids: NDArray[np.uint64], version: int) -> None:
            keys, value = self.keys(ids), self.value(version)
            self._run(
                (b"EVAL", script, 1 + len(part), b"fence", *part, b"0", b"token", *[value] * len(part))
                for part in (keys[some] for some in _parts(len(keys)))
            )

        return push

    def pull_keys(self, ids: NDArray[np.uint64]) -> None:
        """A pull of rows that are keys."""
        keys = self.keys(ids)
        self._run((b"MGET", *keys[part]) for part in _parts(len(keys)))

    def push_fields(self, ids: NDArray[np.uint64], version: int) -> None:
        """A push of rows that are fields of hashes."""
        value = self.value(version)

        def command(hashes: list[bytes], counts: bytes, fields: list[bytes]) -> Command:
            keys = (b"fence", *hashes)
            return (b"EVAL", _HASHES, len(keys), *keys, b"0", b"token", counts, *fields, *[value] * len(fields))

        self._run(command(*each) for each in self._fields(ids))

    def pull_fields(self, ids: NDArray[np.uint64]) -> None:
        """A pull of rows that are fields of hashes."""
        for hashes, counts, fields in self._fields(ids):
            ends = np.cumsum(np.frombuffer(counts, "<u2")).tolist()
            starts = [0, *ends[:-1]]
            self._run((b"HMGET", key, *fields[start:end]) for key, start, end in zip(hashes, starts, ends, strict=True))

    def push_buckets(self, ids: NDArray[np.uint64], version: int) -> None:
        """A push of rows that share strings; rows of one string are in different commands."""
        buckets = ids % np.uint64(self._buckets)
        order = np.argsort(buckets, kind="stable")
        rank = np.arange(len(ids)) - np.searchsorted(buckets[order], buckets[order])
        value = self.value(version)
        for nth in range(int(rank.max()) + 1):
            mine = order[rank == nth]
            for part in (mine[some] for some in _parts(len(mine))):
                keys = [b"e:%d" % bucket for bucket in buckets[part].tolist()]
                rows = [row.tobytes() + value for row in ids[part]]
                self._run([(b"EVAL", _BUCKETS, 1 + len(keys), b"fence", *keys, b"0", b"token", *rows)])

    def pull_buckets(self, ids: NDArray[np.uint64]) -> None:
        """A pull of the strings of rows."""
        buckets = np.unique(ids % np.uint64(self._buckets))
        self._run(
            (b"MGET", *(b"e:%d" % bucket for bucket in part.tolist()))
            for part in (buckets[some] for some in _parts(len(buckets)))
        )

    def _fields(self, ids: NDArray[np.uint64]) -> Iterator[tuple[list[bytes], bytes, list[bytes]]]:
        places = addresses(ids)[0]
        hashes = layout.quarter_keys("e", "embeddings")
        order = np.argsort(places, kind="stable")
        for part in (order[some] for some in _parts(len(order))):
            runs = layout.runs(places[part])
            counts = np.array([run.stop - run.start for run in runs], "<u2").tobytes()
            yield [hashes[places[part[run.start]]] for run in runs], counts, [row.tobytes() for row in ids[part]]

    def _run(self, commands: Iterable[Command]) -> None:
        with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            pipeline.execute()


def _parts(rows: int) -> list[slice]:
    return [slice(at, at + _ROWS_PER_COMMAND) for at in range(0, rows, _ROWS_PER_COMMAND)]


def layouts(client: Redis, url: str, spec: TableSpec, total: int) -> Iterator[tuple[str, Push, Pull]]:
    """Yields each layout with its push and pull, on an empty Redis."""
    rows = Rows(client, spec.row_width, total)
    yield "a key per row, one by one (format 4)", rows.push_keys(_ONE_BY_ONE), rows.pull_keys
    yield "a key per row, together", rows.push_keys(_TOGETHER), rows.pull_keys
    yield f"strings of {_BUCKET_ROWS} rows", rows.push_buckets, rows.pull_buckets
    yield "fields of hashes, named by id", rows.push_fields, rows.pull_fields
    with rows_in_store(url, spec) as table:

        def push(ids: NDArray[np.uint64], version: int) -> None:
            block = np.zeros((len(ids), spec.row_width), np.float32)
            table.write_newer(RowBlock(ids, np.full(len(ids), version), block))

        def pull(ids: NDArray[np.uint64]) -> None:
            table.read(ids)

        yield "the store (format 5)", push, pull


def spec_of(dimension: int) -> TableSpec:
    """Returns a table whose rows have row-wise Adagrad."""
    return TableSpec(
        "embeddings", dimension, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD, 0.1), seed=0, init_scale=0.01
    )


@contextmanager
def rows_in_store(url: str, spec: TableSpec) -> Iterator[RowStore]:
    """Makes a table in the store of a server, and yields its rows."""
    store = open_store(url, Shard(), 60.0)
    try:
        store.claim(exclusive=False)
        store.create(spec)
        yield store.open(spec).rows
    finally:
        store.close()


def measure(dimension: int, total: int) -> Iterator[Measured]:
    """Yields the figures of every layout for rows of a table with row-wise Adagrad."""
    spec = spec_of(dimension)
    ids = np.random.default_rng(0).integers(0, 2**64, total, dtype=np.uint64)
    calls = [ids[at : at + _ROWS_PER_CALL] for at in range(0, total, _ROWS_PER_CALL)]
    with (
        tempfile.TemporaryDirectory(prefix="esd-bench-") as directory,
        redis_server(Path(directory), "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0") as server,
        Redis(port=server.port) as client,
    ):

        def per_row(call: Callable[[NDArray[np.uint64]], None]) -> float:
            before = _processor_seconds(client)
            for part in calls:
                call(part)
            return (_processor_seconds(client) - before) / total * 1e6

        def memory() -> int:
            client.connection_pool.disconnect()
            time.sleep(0.2)  # Redis frees the buffers of a closed socket in its next round
            return int(client.info("memory")["used_memory"])

        for name, push, pull in layouts(client, server.url, spec, total):
            empty = memory()
            new = per_row(partial(push, version=1))
            file = client.info("persistence")["aof_current_size"]
            known = per_row(partial(push, version=2))
            file_bytes = (client.info("persistence")["aof_current_size"] - file) / total
            yield Measured(
                name, spec.row_width, total, new, known, per_row(pull), (memory() - empty) / total, file_bytes
            )
            client.flushall()
            client.hset("fence", "0", "token")


def _processor_seconds(client: Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def main() -> None:
    """Measures every layout at each dimension, prints the figures and writes them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of 17 floats; wider ones are fewer")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    results = []
    for dimension in arguments.dimensions:
        for figures in measure(dimension, arguments.rows * 16 // max(16, dimension)):
            results.append(asdict(figures))
            print(
                f"{figures.values:>5} floats, {figures.layout:<38} us per row: new {figures.new:5.2f}, "
                f"known {figures.known:5.2f}, read {figures.read:5.2f}; bytes per row {figures.bytes:6.1f}, "
                f"of the file {figures.file_bytes:6.1f}",
                flush=True,
            )
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
