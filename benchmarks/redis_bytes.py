"""Bytes per row in Redis or Valkey: `python -m benchmarks.redis_bytes [--program redis-server] [--dim 16]`.

Writes ever more rows with row-wise Adagrad through the store, and prints at ten sizes how many bytes the server takes
for each. The figure falls as the tables of its hashes fill, and rises when they double, so the sizes are spread evenly
over two doublings. `--program` is any server that is used like `redis-server`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from redis import Redis

from benchmarks.redis_layouts import rows_in_store, spec_of
from esd.services.domain.rows import RowBlock
from testbed.redis_server import redis_server

_ROWS_PER_CALL = 26_000
_SIZES = [int(1_000_000 * 4 ** (step / 10)) for step in range(10)]


def measure(program: str, dimension: int) -> Iterator[tuple[int, float, float]]:
    """Yields the number of rows, and the bytes per row at once and after the hashes have ended their doubling."""
    spec = spec_of(dimension)
    ids = np.random.default_rng(0).integers(0, 2**64, _SIZES[-1], dtype=np.uint64)
    with (
        tempfile.TemporaryDirectory(prefix="esd-bench-") as directory,
        redis_server(Path(directory), "--appendonly", "no", program=program) as server,
        Redis(port=server.port) as client,
        rows_in_store(server.url, spec) as rows,
    ):
        empty, begin = _used(client), 0
        for size in _SIZES:
            for at in range(begin, size, _ROWS_PER_CALL):
                part = ids[at : min(at + _ROWS_PER_CALL, size)]
                block = np.zeros((len(part), spec.row_width), np.float32)
                rows.write_newer(RowBlock(part, np.ones(len(part), np.int64), block))
            at_once, begin = _used(client), size
            yield size, (at_once - empty) / size, (_settled(client) - empty) / size


def _used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _settled(client: Redis) -> int:
    """Waits, at most a minute, until Redis has ended the doubling of its hashes, which it does in idle moments."""
    end, last = time.monotonic() + 60, -1
    while (used := _used(client)) != last and time.monotonic() < end:
        last = used
        time.sleep(1.0)
    return used


def main() -> None:
    """Prints a line for each size, and the mean."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default="redis-server")
    parser.add_argument("--dim", type=int, default=16)
    arguments = parser.parse_args()
    found = []
    for size, at_once, settled in measure(arguments.program, arguments.dim):
        found.append((at_once, settled))
        print(f"{size:>9} rows: {at_once:6.1f} bytes each, {settled:6.1f} a moment later", flush=True)
    print("     mean: {:6.1f}, {:6.1f}".format(*np.mean(found, axis=0)))


if __name__ == "__main__":
    main()
