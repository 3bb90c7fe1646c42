"""Plans and batches of a job with several tables, taken apart by table."""

import numpy as np
import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table, parts_of_tables
from esd.services.domain.plans import GradientTransfers, Transfers
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec, slots_of_tables

A, B, C = 5, (1 << 56) + 2, (1 << 56) + 9  # ids of the tables 0, 1 and 1


def transfers(ids: list[int], early: int) -> Transfers:
    numbers = range(len(ids))
    return Transfers(np.array(ids, np.uint64), np.array(numbers, np.uint32), np.array(numbers, np.int64), early)


def test_transfers_of_a_table_keep_their_order_and_what_is_early() -> None:
    rows = transfers([C, A, B, A + 1, B + 1], early=3)
    first, second, third = rows.by_table(3)
    assert (first.ids.tolist(), first.slots.tolist(), first.early) == ([A, A + 1], [1, 3], 1)
    assert (second.ids.tolist(), second.slots.tolist(), second.early) == ([C, B, B + 1], [0, 2, 4], 2)
    assert (len(third), third.early) == (0, 0)
    assert rows.by_table(1) == [rows]


def test_gradients_go_with_their_rows() -> None:
    steps = np.array([7, 8, 9], np.int64)
    gradients = GradientTransfers(transfers([B, A, C], early=0), np.array([1, 3, 5], np.uint64), steps)
    first, second = gradients.by_table(2)
    assert (first.contributors.tolist(), first.steps.tolist()) == ([3], [8])
    assert (second.contributors.tolist(), second.steps.tolist(), second.rows.ids.tolist()) == ([1, 5], [7, 9], [B, C])


def test_every_id_is_of_one_part() -> None:
    ids = in_table(np.arange(40, dtype=np.uint64), np.arange(40, dtype=np.uint64) % np.uint64(3))
    parts = parts_of_tables(ids, 4)
    assert [part.tolist() for part in parts] == [*(list(range(number, 40, 3)) for number in range(3)), []]


FEATURES = (Feature("item", 0), Feature("tags", 1, Pooling.SUM, max_length=3))


def batch(ids: list[int], tags: list[int]) -> SampleBatch:
    lengths = np.array([[1, count] for count in tags], np.uint32)
    shape = (len(tags), 0)
    return SampleBatch(
        np.array(ids, np.uint64), np.zeros(shape, np.float32), np.zeros((len(tags), 1), np.float32), lengths
    )


def test_an_id_of_another_table_than_its_feature_is_refused() -> None:
    batch([A, B, C, A, A], [2, 0, 0]).check_shape(FEATURES, 0, 1)
    with pytest.raises(InvalidArgument, match=f"id {B} of feature 'item' of sample 1 is of table 1"):
        batch([A, B, C, B, A], [2, 0, 0]).check_shape(FEATURES, 0, 1)
    with pytest.raises(InvalidArgument, match=f"id {A} of feature 'tags' of sample 0 is of table 0"):
        batch([A, A], [1]).check_shape(FEATURES, 0, 1)


def test_a_table_may_fill_the_room_of_a_cache_alone() -> None:
    wide = TableSpec("wide", 64, OptimizerSpec(OptimizerKind.ADAM), 0, 0.1)  # 784 bytes with id and version
    narrow = TableSpec("narrow", 8, OptimizerSpec(), 0, 0.1)  # 48
    assert slots_of_tables([wide, narrow], 10) == (10, 163)
    assert slots_of_tables([narrow, wide], 10) == (10, 1)  # one row fits always: the engine refuses what has no room
