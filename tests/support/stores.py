"""Stores of parameter servers, opened for tests, and the rows that tests put into them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import RowStore, Store
from esd.ps_server.stores.by_url import open_store
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

SPEC = TableSpec("clicks-1_a", 6, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD, 0.1), seed=2**64 - 1, init_scale=0.25)
ALL_BITS = 2**64 - 1
DISPATCHER, ANOTHER = b"one dispatcher, ", b"another one here"  # claimants
ALONE = Shard()
PATIENCE_SECONDS = 60.0  # with Redis, on a machine that stands still now and then


def open_store_at(url: str | Path, shard: Shard = ALONE) -> Store:
    """A store without a claim."""
    if isinstance(url, Path) or url.startswith("s3://"):
        return open_store("memory", shard, PATIENCE_SECONDS, checkpoint_dir=url)
    return open_store(url, shard, PATIENCE_SECONDS)


def open_url(url: str | Path, shard: Shard = ALONE) -> Store:
    """A store as its server has it."""
    store = open_store_at(url, shard)
    store.claim(exclusive=False)
    return store


def rows_of(rng: np.random.Generator, ids: ArrayLike, version: int, width: int = SPEC.row_width) -> RowBlock:
    ids = np.asarray(ids, np.uint64)
    return RowBlock(ids, np.full(len(ids), version), rng.standard_normal((len(ids), width)).astype(np.float32))


def gradients_of(
    rng: np.random.Generator, ids: ArrayLike, worker: int, target: int = 1, contributors: int = 0b111
) -> GradientBlock:
    ids = np.asarray(ids, np.uint64)
    r = len(ids)
    values = rng.standard_normal((r, SPEC.dimension)).astype(np.float32)
    columns = np.full(r, target), sets_of(contributors, r)
    steps, rates = np.full(r, 9, np.uint32), np.full(r, SPEC.optimizer.learning_rate, np.float32)
    return GradientBlock(ids, *columns, steps, rates, values, worker)


def sets_of(workers: int, rows: int) -> NDArray[np.uint64]:
    """The same set of workers for each row, in two words if it has a worker from 64 on."""
    if workers < 2**64:
        return np.full(rows, workers, np.uint64)
    return np.tile(np.array([workers % 2**64, workers >> 64], np.uint64), (rows, 1))


def assert_rows(block: RowBlock, expected: RowBlock) -> None:
    np.testing.assert_array_equal(block.ids, expected.ids)
    np.testing.assert_array_equal(block.versions, expected.versions)
    np.testing.assert_array_equal(block.rows, expected.rows)


def as_dict(table: RowStore) -> dict[int, tuple[int, bytes]]:
    """Every stored row: id -> version and bytes."""
    return blocks_as_dict(table.scan())


def blocks_as_dict(blocks: Iterable[RowBlock]) -> dict[int, tuple[int, bytes]]:
    return {
        int(i): (int(v), row.tobytes())
        for block in blocks
        for i, v, row in zip(block.ids, block.versions, block.rows, strict=True)
    }
