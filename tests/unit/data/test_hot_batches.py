"""Hot and normal mini-batches: every sample once, none far from its place, and nothing moves for the hot ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from esd.data import Dataset, open_data
from esd.data.derived import DerivedDataset
from esd.data.epochs import Epochs
from esd.data.hot_batches import HotBatches, ReplicatedRows
from esd.dispatcher.core.planner import Planner
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

URI = "synthetic:zipf?samples=12000&fields=3&keys=3000&skew=1.6"
SIZE = 64
ROWS = ReplicatedRows(room=400, table_sizes=(), workers=4, seed=3)


def hot_batches(patience: int = 20, source: Dataset | None = None, read: int = 300) -> HotBatches:
    source = source or open_data(URI, read, seed=1)
    return HotBatches(source, batch_size=SIZE, patience=patience, rows=ROWS)


def rows(batch: SampleBatch) -> np.ndarray:
    """One row per sample, with all that it consists of."""
    return np.hstack([batch.by_field, batch.dense.view(np.uint32).astype(np.uint64), batch.labels.astype(np.uint64)])


def places(batches: Dataset, source: Dataset) -> list[np.ndarray]:
    """Where the samples of each batch stand in the data set. Alike samples are in the order of the stream."""
    where: dict[bytes, list[int]] = {}
    for at, row in enumerate(row for batch in source for row in rows(batch)):
        where.setdefault(row.tobytes(), []).append(at)
    for of_sample in where.values():
        of_sample.reverse()
    return [np.array([where[row.tobytes()].pop() for row in rows(batch)]) for batch in batches]


@pytest.mark.parametrize("patience", [4, 20, 100])
def test_every_sample_is_in_one_batch_near_its_place(patience: int) -> None:
    dataset, source = hot_batches(patience), open_data(URI, 300, seed=1)
    found = places(dataset, source)
    assert [len(each) for each in found] == [SIZE] * (12_000 // SIZE) + [12_000 % SIZE][: 12_000 % SIZE]
    assert sorted(np.concatenate(found).tolist()) == list(range(12_000))
    later = [t - at // SIZE for t, each in enumerate(found) for at in each]
    assert -2 < min(later) < 0
    assert 0 < max(later) <= patience + 2
    assert all((np.diff(each) > 0).all() for each in found)  # those of a batch are as they were
    assert dataset.hot_batches > 0.4 * patience


def test_all_epochs_are_read() -> None:
    twice = Epochs(open_data(URI, 300, seed=1), epochs=2, shuffle=1000, seed=3, batch_size=64)
    found = np.concatenate([rows(batch) for batch in hot_batches(source=twice)])
    once = np.concatenate([rows(batch) for batch in open_data(URI, 300, seed=1)])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(np.concatenate([once, once]), axis=0))


def test_batches_are_the_same_however_the_samples_are_read() -> None:
    first, again, other = (hot_batches(read=read) for read in (300, 300, 7))
    for batch, alike, otherwise in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(rows(batch), rows(alike))
        np.testing.assert_array_equal(rows(batch), rows(otherwise))


def test_the_fingerprint_names_what_decides_the_batches() -> None:
    plain = open_data(URI, 300, seed=1).fingerprint
    assert hot_batches().fingerprint == (
        f"{plain}; in hot and normal batches of 64, for which samples wait for 20, by rows for 400 that 4 workers"
        " replicate by seed 3"
    )
    of_tables = HotBatches(
        open_data(URI, 300, seed=1), batch_size=64, patience=1, rows=replace(ROWS, table_sizes=(3, 1))
    )
    assert "by rows for 400 of sizes 3,1 that" in of_tables.fingerprint


class Turning(DerivedDataset):
    """Twenty rows, and then twenty others: the former leave while samples wait that need them."""

    fingerprint = "turning"

    def __iter__(self) -> Iterator[SampleBatch]:
        for number, batch in enumerate(self._source):
            yield replace(batch, ids=batch.ids % np.uint64(20) + np.uint64(1000 * (number >= 20)))


@pytest.mark.parametrize(("turns", "room"), [(False, 400), (True, 20)])
def test_a_hot_batch_moves_nothing(turns: bool, room: int) -> None:
    """But for rows that have just left by the choice of others, which their owners push."""
    source = open_data(URI, 300, seed=1)
    dataset = HotBatches(
        Turning(source) if turns else source, batch_size=SIZE, patience=200, rows=replace(ROWS, room=room)
    )
    options = RunOptions(data=URI, cache_rows=600, sync=f"replicated:{room}", batch=SIZE // 4, seed=ROWS.seed)
    job = options.job(features=source.features, dense_features=source.dense_features, parameter_servers=("none",))
    planner = Planner(job, [1e6] * 4, [600] * 4)
    hot_before, hot, pulls = 0, [], 0
    for batch in dataset:
        decision = planner.plan(batch)
        if dataset.hot_batches > hot_before:
            hot.append(decision.operations)
            assert all(len(plan.reduced) == len(plan.unique_ids) for plan in decision.plans)
        else:
            pulls += int(decision.operations.miss_pull.sum())
        hot_before = dataset.hot_batches
    assert len(hot) > 30
    assert sum(each.miss_pull.sum() + each.evict_push.sum() for each in hot) == 0
    assert sum(each.update_push.any() for each in hot) <= len(hot) / 16
    assert pulls > 200


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="patience 0"):
        hot_batches(0)
    with pytest.raises(InvalidArgument, match="--hot-batches 5 needs rows that all workers have: --sync replicated:R"):
        RunOptions(data=URI, cache_rows=600, hot_batches=5).open(300)
