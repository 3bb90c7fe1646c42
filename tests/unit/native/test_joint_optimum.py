"""Long joint searches reach the optimum that a mixed-integer program proves (HiGHS), beyond brute force's reach."""

from __future__ import annotations

import random

import pytest

from benchmarks.optimum import Program, measure
from tests.unit.native.reference_joint import partial_cost
from tests.unit.native.test_joint_search import int32, with_history


def optimum(reference, capacities, links) -> float:
    """z[i][j]: sample i at worker j."""
    program, workers = Program(), range(len(capacities))
    z = [[program.variable(0, whole=True) for _ in workers] for _ in reference.batch]
    for places in z:
        program.constrain(places, [], 1, 1)
    for j, capacity in enumerate(capacities):
        program.constrain([places[j] for places in z], [], capacity, capacity)
    for x in {x for sample in reference.batch for x in sample}:
        users = [places for sample, places in zip(reference.batch, z, strict=True) if x in sample]
        add_row(program, reference, x, users, links)
    least, proven = program.minimum(60)
    assert proven
    return least


def add_row(program, reference, x, users, links) -> None:
    """y[j]: worker j trains the row, since one of the samples that use it is there."""
    row, workers = reference.rows[x], range(len(links))
    y = [program.variable(0 if row.has_latest(j) else links[j]) for j in workers]
    for places in users:
        for j in workers:
            program.constrain([y[j]], [places[j]], 0)
    if row.kind == "owned":
        (owner,) = row.workers
        push = program.variable(links[owner])
        for j in set(workers) - {owner}:
            program.constrain([push], [y[j]], 0)
    if len(users) > 1:
        for j in workers:  # it trains the row, and not alone
            partial = program.variable(partial_cost(reference, x, links[j]))
            for h in set(workers) - {j}:
                program.constrain([partial], [y[j], y[h]], -1)


@pytest.mark.parametrize("seed", range(3))
def test_long_searches_reach_the_optimum(seed):
    engine, reference = with_history(random.Random(seed), 4, 60, 12, 4, 25)
    links, capacities = [1, 1, 10, 10], [3, 3, 3, 3]
    found = [engine.joint(int32(links), int32(capacities), draw, wide_rounds=500, narrow_rounds=500) for draw in (1, 2)]
    least = optimum(reference, capacities, links)
    assert min(cost for _, cost, _, _ in found) == pytest.approx(least, abs=1e-6)
    assert min(start for _, _, start, _ in found) > least + 1e-6, "the first round leaves nothing to find"


def test_a_batch_of_flights_is_placed_at_the_optimum():
    result = measure("flights", workers=4, samples_per_worker=16, seconds=60)
    assert result.proven
    assert result.long_search == pytest.approx(result.optimum, abs=1e-6)
    assert result.start > result.search > result.optimum
