"""The parameter server's rows in memory and their checkpoint files, without gRPC: `python -m benchmarks.row_store`.

Stores rows with ids that never come twice, and takes a checkpoint every 50 blocks, which is written in a thread while
the next blocks come. Prints a line of JSON per checkpoint: rows so far, memory at most and disk by the bytes of these
rows, and the seconds and processor seconds in which the checkpoint was saved. benchmarks/tables.py measures services.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.tables import memory_of
from esd.cli.report import print_json
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec

_BLOCK, _EVERY = 53_248, 50  # rows of a block; blocks of an interval
_EPOCH = 1


def save(table: Table, cut: int) -> tuple[float, float]:
    """Saves and commits a cut; returns the seconds and the processor seconds of this thread that it took."""
    wall, processor = time.monotonic(), time.thread_time()
    table.history.save(_EPOCH, cut)
    table.history.commit(_EPOCH, cut, b"", 2)
    return time.monotonic() - wall, time.thread_time() - processor


def measure(directory: Path, dimension: int, checkpoints: int, show: Callable[[dict[str, float]], None]) -> None:
    """Grows a table in a directory; shows the figures of each checkpoint when the next one is due."""
    spec = TableSpec("t", dimension, OptimizerSpec(), 0, init_scale=0.01)
    store = DirectoryStore(directory, Shard())
    store.claim(exclusive=True)
    store.create(spec)
    table = Table(spec, store.open(spec), Shard())
    table.history.begin_epoch(_EPOCH, b"benchmark", takes_over=False)
    rng = np.random.default_rng(0)
    values, versions = rng.random((_BLOCK, spec.row_width), np.float32), np.ones(_BLOCK, np.int64)
    start, most, saving = memory_of(os.getpid()), 0, None
    with ThreadPoolExecutor(1) as threads:
        for block in range(1, checkpoints * _EVERY + 1):
            ids = rng.integers(0, 2**62, _BLOCK, np.uint64)
            table.push_rows(RowBlock(ids, versions, values), _EPOCH)
            most = max(most, memory_of(os.getpid()))
            if block % _EVERY == 0:
                if saving is not None:
                    show(_figures(table, directory, most - start, saving, block - _EVERY))
                table.history.cut(_EPOCH, block, 0, 1)
                saving = threads.submit(save, table, block)
        assert saving is not None  # noqa: S101 - there is a checkpoint after the last block
        saving.result()
        show(_figures(table, directory, most - start, saving, block))
    store.close()


def _figures(
    table: Table, directory: Path, memory: int, saving: Future[tuple[float, float]], blocks: int
) -> dict[str, float]:
    wall, processor = saving.result()
    saved = blocks * _BLOCK * table.row_bytes
    disk = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return {
        "rows": blocks * _BLOCK,
        "memory_times_of_rows": memory / (table.stored_rows() * table.row_bytes),
        "disk_times_of_rows": disk / saved,
        "save_seconds": wall,
        "save_processor_seconds": processor,
    }


def main() -> None:
    """Prints one JSON object per checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=5, help="of 2.7 million new rows each")
    parser.add_argument("--dim", type=int, default=16)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="esd-row-store-") as directory:
        measure(Path(directory), arguments.dim, arguments.checkpoints, print_json)


if __name__ == "__main__":
    main()
