"""Newer rows over the rows of a folder: which ones count, while all of them come and afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from esd.model.files import new_folder
from esd.model.fresh_rows import FreshRows
from esd.model.sorted_rows import SortedRows
from esd.model.table import TrainedTable, write_table
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.reference import initial_rows

TABLE = TableSpec("items", 3, OptimizerSpec(), 8, 0.1)
IDS = np.arange(100, dtype=np.uint64)
SHARDS = 2


def values_of(ids: np.ndarray, value: float) -> np.ndarray:
    return np.full((len(ids), 3), value, np.float32)


@pytest.fixture
def table(tmp_path: Path) -> TrainedTable:
    """A folder's table whose rows are 1, with newer rows of two shards over it, of which there are none yet."""
    with new_folder(tmp_path / "model") as writer, SortedRows(3, tmp_path) as rows:
        rows.add(RowBlock(IDS, np.ones(len(IDS), np.int64), values_of(IDS, 1)))
        write_table(writer, TABLE, rows)
        writer.write("config.json", b"{}")
    found = TrainedTable(tmp_path / "model", TABLE)
    found.fresh = FreshRows(found, SHARDS)
    return found


def own(shard: int) -> np.ndarray:
    """The ids of a shard."""
    return IDS[shard_of(IDS, SHARDS) == shard]


def test_newer_rows_count_and_others_are_the_folders(table: TrainedTable) -> None:
    assert table.fresh is not None
    np.testing.assert_array_equal(table.look_up(IDS), values_of(IDS, 1))
    new = np.array([1000], np.uint64)
    shard = int(shard_of(new, SHARDS)[0])
    table.fresh.put(shard, np.concatenate([own(shard)[:2], new]), values_of(np.arange(3), 2))
    table.fresh.put(shard, own(shard)[1:2], values_of(np.arange(1), 3))
    wanted = np.concatenate([own(shard)[:3], new, own(shard)[:1]])
    assert table.look_up(wanted)[:, 0].tolist() == [2, 3, 1, 2, 2]
    assert (table.look_up(own(1 - shard)) == 1).all()


def test_all_rows_of_a_shard_count_from_the_moment_when_they_are_complete(table: TrainedTable) -> None:
    fresh = table.fresh
    assert fresh is not None
    first, second, gone = own(0)[:1], own(0)[1:2], own(0)[2:]
    fresh.put(0, first, values_of(first, 2))
    fresh.put(1, own(1)[:1], values_of(own(1)[:1], 2))
    fresh.begin(0)
    fresh.put(0, first, values_of(first, 1))
    fresh.put(0, second, values_of(second, 5))
    assert table.look_up(np.concatenate([first, second]))[:, 0].tolist() == [2, 1], "not before"
    fresh.complete(0)
    assert table.look_up(np.concatenate([first, second]))[:, 0].tolist() == [1, 5]
    np.testing.assert_array_equal(table.look_up(gone), initial_rows(TABLE, gone))
    assert table.look_up(own(1))[:2, 0].tolist() == [2, 1], "the other shard is as it was"


def test_rows_that_do_not_come_to_their_end_count_for_nothing(table: TrainedTable) -> None:
    fresh = table.fresh
    assert fresh is not None
    fresh.begin(0)
    fresh.put(0, own(0), values_of(own(0), 9))
    fresh.abandon(0)
    fresh.complete(0)
    np.testing.assert_array_equal(table.look_up(IDS), values_of(IDS, 1))


def test_rows_that_equal_the_folders_take_no_memory(table: TrainedTable) -> None:
    fresh = table.fresh
    assert fresh is not None
    empty = fresh.memory_bytes
    for shard in range(SHARDS):
        fresh.begin(shard)
        fresh.put(shard, own(shard), values_of(own(shard), 1))
        fresh.complete(shard)
    assert fresh.memory_bytes == empty
    fresh.put(0, own(0), values_of(own(0), 2))
    assert fresh.memory_bytes > empty
