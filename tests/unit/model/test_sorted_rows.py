"""The external sort of a table's rows: the order of numpy's sort, in memory that does not follow the table."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from esd.model.sorted_rows import SortedRows
from esd.services.domain.rows import RowBlock

DIMENSION, WIDTH = 3, 5  # a row has two floats of optimizer state


def blocks_of(ids: np.ndarray, each: int) -> list[RowBlock]:
    """Rows whose values and versions follow from their ids, in blocks."""
    return [
        RowBlock(
            part,
            part.astype(np.int64) // 7,
            (part[:, None] % np.uint64(1000) + np.arange(WIDTH, dtype=np.uint64)).astype(np.float32),
        )
        for part in np.split(ids, range(each, len(ids), each))
    ]


def shuffled(count: int) -> np.ndarray:
    """Distinct ids over the whole range, and some that follow each other closely."""
    rng = np.random.default_rng(0)
    ids = np.unique(np.concatenate([rng.integers(0, 2**64, count, np.uint64), np.arange(count, dtype=np.uint64)]))
    rng.shuffle(ids)
    return ids


@pytest.mark.parametrize("count", [0, 1, 300, 20_000])
@pytest.mark.parametrize("run_bytes", [1, 100_000, 2**30])
def test_columns_come_in_the_order_of_the_ids(tmp_path: Path, count: int, run_bytes: int) -> None:
    ids = shuffled(count)
    with SortedRows(DIMENSION, tmp_path, run_bytes) as rows:
        for block in blocks_of(ids, 700) if count else []:
            rows.add(block)
        columns = {
            name: np.concatenate([np.empty((0, *shape[1:]), dtype), *rows.column(name)])
            for name, (shape, dtype) in rows.shapes.items()
        }
        assert {name: (each.shape, each.dtype) for name, each in columns.items()} == rows.shapes
    (expected,) = blocks_of(np.sort(ids), max(1, len(ids)))[:1]
    assert (columns["ids"] == expected.ids).all()
    assert (columns["versions"] == expected.versions).all()
    assert (columns["rows"] == expected.rows[:, :DIMENSION]).all()
    assert not list(tmp_path.iterdir())


def test_memory_has_a_part_of_the_rows(tmp_path: Path) -> None:
    ids = shuffled(200_000)
    whole = len(ids) * (16 + 4 * DIMENSION)
    with SortedRows(DIMENSION, tmp_path, whole // 64) as rows:
        tracemalloc.start()
        try:
            for first in range(0, len(ids), 5000):
                for block in blocks_of(ids[first : first + 5000], 5000):
                    rows.add(block)
            parts = [len(part) for name in rows.shapes for part in rows.column(name)]
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert sum(parts) == 3 * len(ids)
    assert most < whole / 8
