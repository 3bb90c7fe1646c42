"""Rows pushed before they are needed, held to FRUGAL §3.3: its trace, its gate, and the order of its queue."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from esd.native.engine import Engine, Proactive

if TYPE_CHECKING:
    from esd.native.engine import PlanColumns

NEVER = 2**31


def step(engine: Engine, workloads: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
    """One iteration with a row per sample; the ids that each worker pushes."""
    samples = [[x] for workload in workloads for x in workload]
    assignment = [j for j, workload in enumerate(workloads) for _ in workload]
    engine.prepare(np.array(samples, np.uint64))
    return [pushes_of(plan) for plan in engine.commit(np.array(assignment, np.int32), limits)]


def pushes_of(plan: PlanColumns) -> list[int]:
    pushes = plan["update_rows"], plan["update_gradients"], plan["evict_rows"], plan["evict_gradients"]
    return [x for push in pushes for x in push["ids"].tolist()]


@pytest.mark.parametrize("room", [0, 1])
def test_frugal_figure_6(room: int) -> None:
    """L = 2: steps 0, 1, 2 read k2 k3 k1, then k2, then k1, the latter two on the other worker.

    A step begins when the rows that it reads are flushed, so k2 leaves before step 1 and k1 before step 2. No step
    reads k3 any more: on a busy link it waits until the end, and on a link with room for a row it leaves after k1,
    which is read.
    """
    k1, k2, k3 = 1, 2, 3
    engine = Engine([8, 8], "lru", sync=Proactive())
    engine.look_ahead(np.array([k2], np.uint64), 1)
    assert step(engine, [[k2, k3, k1], [9]], [room, 0]) == [[], []]
    engine.look_ahead(np.array([k1], np.uint64), 2)
    assert step(engine, [[8], [k2]], [room, 0]) == [[k2], []]  # the gate; k1 and k3 were trained just now
    assert step(engine, [[8], [k1]], [room, 0]) == ([[k1], []] if room == 0 else [[k1, k3], []])
    left = [sorted(flush["rows"]["ids"].tolist()) for flush in engine.flush()]
    assert left == [[k3, 8] if room == 0 else [8], [k1, k2, 9]]


class GEntries:
    """FRUGAL's entries of a row: the iterations that will read it, and the workers with an unpushed update."""

    def __init__(self, workers: int) -> None:
        self.reads: defaultdict[int, set[int]] = defaultdict(set)
        self.writes: list[dict[int, int]] = [{} for _ in range(workers)]  # row -> iteration of its training

    def priority(self, x: int, now: int) -> int:
        """Eq. 1 for a row that waits: the next read."""
        return min((s for s in self.reads[x] if s > now), default=NEVER)

    def candidates(self, worker: int, batch: set[int], now: int) -> set[int]:
        """The rows that the worker may push ahead: they wait, are not needed now and are not in training meanwhile."""
        return {x for x, trained in self.writes[worker].items() if x not in batch and trained < now - 1}


@pytest.mark.parametrize("lookahead", [1, 10])
@pytest.mark.parametrize("seed", range(6))
def test_the_gate_and_the_order_of_the_queue(seed: int, lookahead: int) -> None:
    """Random streams on links with random room, where caches overflow, rows split, and a flush comes in between."""
    rng = random.Random(seed)
    workers, steps = rng.choice((2, 3, 9)), 120
    batches = [[int(40 * rng.random() ** 2) for _ in range(3 * workers)] for _ in range(steps)]
    engine, known = Engine([rng.choice((6, 12, 50)) for _ in range(workers)], "emark", sync=Proactive()), 0
    entries = GEntries(workers)
    ahead = waiting = 0
    for now, batch in enumerate(batches):
        for later in range(known + 1, min(now + lookahead + 1, steps)):
            engine.look_ahead(np.unique(np.array(batches[later], np.uint64)), later)
            for x in batches[later]:
                entries.reads[x].add(later)
            known = later
        limits = [rng.choice((0, 1, 3, 100)) for _ in range(workers)]
        assignment = [j for j in range(workers) for _ in range(3)]
        engine.prepare(np.array([[x] for x in batch], np.uint64))
        plans = list(engine.commit(np.array(assignment, np.int32), limits))
        for j, plan in enumerate(plans):
            needed, waits = set(batch), entries.candidates(j, set(batch), now)
            pushed = pushes_of(plan)
            assert set(pushed) <= entries.writes[j].keys()  # W is not empty: nothing is pushed twice
            assert len(pushed) == len(set(pushed))
            evicted = {*plan["evict_rows"]["ids"].tolist(), *plan["evict_gradients"]["ids"].tolist()}
            chosen = set(pushed) - needed - evicted
            left = waits - set(pushed)
            assert chosen <= waits
            assert len(chosen) <= limits[j]
            assert len(chosen) == limits[j] or not left
            order = [max((entries.priority(x, now) for x in chosen), default=-1)]
            assert all(entries.priority(x, now) >= order[0] for x in left)
            for x in pushed:
                del entries.writes[j][x]
            ahead, waiting = ahead + len(chosen), waiting + len(left)
        for j, plan in enumerate(plans):  # invariant 2 of FRUGAL, by row: what is pulled waits nowhere
            for x in plan["pulls"]["ids"].tolist():
                assert not any(x in writes for writes in entries.writes), f"{x} is read by {j} and waits"
        for x, j in zip(batch, assignment, strict=True):
            entries.writes[j][x] = now
        if rng.random() < 0.03:
            flushed = [{*f["rows"]["ids"].tolist(), *f["gradients"]["ids"].tolist()} for f in engine.flush()]
            assert flushed == [set(writes) for writes in entries.writes]
            entries.writes = [{} for _ in range(workers)]
    assert ahead > 30
    assert waiting > 30
