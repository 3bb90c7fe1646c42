"""Hot samples, marked before dispatch, against a plain reference and against the engine's replicated rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from esd.native.engine import Engine, HotSamples, Replicated

PERIOD = 32
WORKERS = 3
SIZES = [2, 1]  # of the rows of two tables


class Reference:
    """Replicated rows as docs/semantics.md defines them."""

    def __init__(self, room: int, seed: int) -> None:
        x = seed  # splitmix64's finaliser
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        self.phase = (x ^ x >> 31) % PERIOD
        self.room = room
        self.heat: Counter[int] = Counter()
        self.chosen: set[int] = set()
        self.replicated: set[int] = set()
        self.iteration = 0

    def train(self, ids: list[int]) -> bool:
        self.replicated |= self.chosen & set(ids)
        self.heat.update(ids)
        self.iteration += 1
        if self.iteration % PERIOD != self.phase:
            return False
        hottest = sorted(
            (x for x, reads in self.heat.items() if reads > WORKERS),
            key=lambda x: (-self.heat[x] * (5 if x in self.chosen else 4), x),
        )
        before, self.chosen, room = self.replicated, set(), self.room
        for x in hottest:
            room -= SIZES[x >> 56]
            if room < 0:
                break
            self.chosen.add(x)
        self.heat = Counter({x: reads - (reads + 3) // 4 for x, reads in self.heat.items()})
        self.replicated = before & self.chosen
        return self.replicated != before


def stream(rng: np.random.Generator, iterations: int) -> list[np.ndarray]:
    """Batches of 8 samples of 3 fields of two tables; the popular values drift."""
    batches = []
    for t in range(iterations):
        values = (30 * rng.random((8, 3)) ** 3).astype(np.uint64) + np.uint64(t // 64)
        batches.append(values | np.array([0, 0, 1 << 56], np.uint64))
    return batches


def engine_at(iteration: int, seed: int) -> Engine:
    """An engine that goes on from another job, none of whose rows was read often, to a stream of its own."""
    before, engine = (
        Engine([90] * WORKERS, "lru", table_sizes=SIZES, sync=Replicated(room=20, seed=seed, first_iteration=first))
        for first in (0, iteration)
    )
    for t in range(iteration):
        before.prepare(np.array([[1000 + t]], np.uint64))
        before.commit(np.zeros(1, np.int32))
    before.flush()
    engine.restore(before.snapshot())
    return engine


@pytest.mark.parametrize("seed", range(6))
def test_samples_are_hot_whose_rows_the_engine_has_replicated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hot_samples, reference = HotSamples(SIZES, 20, WORKERS, seed), Reference(20, seed)
    engine = engine_at(7 * seed, seed)
    left = hot = mixed = 0
    for ids in stream(rng, 300):
        found = hot_samples.judge(ids)
        assert found.tolist() == [set(sample) <= reference.replicated for sample in ids.tolist()]
        as_lists = hot_samples.judge(ids.reshape(-1), np.ones(ids.shape, np.uint32))
        assert as_lists.tolist() == found.tolist()
        engine.prepare(ids)
        plans = engine.commit(rng.integers(0, WORKERS, len(ids)).astype(np.int32))
        needed = set(ids[found].ravel().tolist())
        assert all(needed <= set(plan["unique_ids"][plan["reduced"]].tolist()) for plan in plans)
        changed = hot_samples.train(ids)
        assert changed == reference.train(ids.ravel().tolist())
        left, hot, mixed = left + changed, hot + found.sum(), mixed + (~found).sum()
    assert left > 2
    assert hot > 100
    assert mixed > 100


def test_a_sample_without_rows_is_hot_and_lists_count_by_their_lengths() -> None:
    hot_samples = HotSamples([], 10, 1, 0)
    ids, lengths = np.array([7, 7, 8], np.uint64), np.array([[0, 0], [2, 0], [0, 1]], np.uint32)
    assert hot_samples.judge(ids, lengths).tolist() == [True, False, False]
    for _ in range(2 * PERIOD):
        hot_samples.train(np.array([[7]], np.uint64))
    assert hot_samples.judge(ids, lengths).tolist() == [True, True, False]


def test_rows_that_nobody_reads_any_more_take_no_memory() -> None:
    hot_samples, taken = HotSamples([], 100, 1, 0), []
    for t in range(40 * PERIOD):
        hot_samples.train(np.arange(t * 500, (t + 1) * 500, dtype=np.uint64).reshape(-1, 5))
        taken.append(hot_samples.memory_bytes)
    assert taken[-1] <= 1.2 * taken[3 * PERIOD]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="room is 0"):
        HotSamples([], 0, 1, 0)
    with pytest.raises(ValueError, match="65 workers"):
        HotSamples([], 1, 65, 0)
    with pytest.raises(ValueError, match="the row size of table 1 is 0"):
        HotSamples([1, 0], 1, 1, 0)
    hot_samples = HotSamples(SIZES, 5, 1, 0)
    with pytest.raises(ValueError, match="is of table 2, there are 2"):
        hot_samples.train(np.array([[2 << 56]], np.uint64))
    with pytest.raises(ValueError, match="lengths sum to 1, there are 2 ids"):
        hot_samples.judge(np.array([1, 2], np.uint64), np.array([[1]], np.uint32))
