"""Long joint searches reach the optimum that a mixed-integer program proves (HiGHS), beyond brute force's reach."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.optimum import measure, program_of
from tests.unit.native.reference_engine import ReferenceEngine
from tests.unit.native.reference_joint import partial_cost, reuse_probability
from tests.unit.native.test_joint_search import int32, with_history


class ReferenceRows:
    """The rows of a reference engine, whose caches evict: clean ones may have several holders."""

    def __init__(self, reference: ReferenceEngine) -> None:
        self._reference = reference

    def latest(self, row: int) -> set[int]:
        state = self._reference.rows[row]
        return {worker for worker in state.workers if state.has_latest(worker)}

    def owner(self, row: int) -> int | None:
        state = self._reference.rows[row]
        return min(state.workers) if state.kind == "owned" else None

    def partial_cost(self, row: int, link: int) -> float:
        states = self._reference.rows
        return partial_cost(self._reference, row, link, reuse_probability(states.values(), states[row].version + 1))


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_long_searches_reach_the_optimum(seed, flushed):
    engine, reference = with_history(random.Random(seed), 4, 60, 12, 4, 25)
    if flushed:  # rows that somebody has, and nobody owns
        engine.flush()
        reference.flush()
        engine.prepare(np.array(reference.batch, np.uint64))
        reference.prepare(reference.batch)
    links, capacities = [1, 1, 10, 10], [3, 3, 3, 3]
    found = [engine.joint(int32(links), int32(capacities), draw, wide_rounds=500, narrow_rounds=500) for draw in (1, 2)]
    least, proven = program_of(reference.batch, ReferenceRows(reference), links, capacities).minimum(60)
    assert proven
    assert min(cost for _, cost, _, _ in found) == pytest.approx(least, abs=1e-6)
    assert min(start for _, _, start, _ in found) > least + 1e-6, "the first round leaves nothing to find"


def test_a_batch_of_flights_is_placed_at_the_optimum():
    result = measure("flights", workers=4, samples_per_worker=16, seconds=60)
    assert result.proven
    assert result.long_search == pytest.approx(result.optimum, abs=1e-6)
    assert result.start > result.search > result.optimum
