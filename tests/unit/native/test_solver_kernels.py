"""Native solver: fall-back, warm start, criteria and greedy against plain Python."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from esd.native import solver
from esd.services.domain.ids import mix64

CRITERIA = ("min2-min", "min3-min", "min3-min2", "row-mean")


def criterion_value(row, criterion):
    """ESD §4.3 on one row of costs of the workers with capacity."""
    ascending = sorted(row)
    smallest = [ascending[min(p, len(ascending) - 1)] for p in range(3)]
    return {
        "min2-min": smallest[1] - smallest[0],
        "min3-min": smallest[2] - smallest[0],
        "min3-min2": smallest[2] - smallest[1],
        "row-mean": sum(row) / len(row),
    }[criterion]


def greedy(costs, capacities, order, prices):
    """ESD Alg. 2 lines 13-27 on costs + prices."""
    room = list(capacities)
    chosen = []
    for i in order:
        worker = min((j for j in range(len(room)) if room[j] > 0), key=lambda j, i=i: costs[i, j] + prices[j])
        room[worker] -= 1
        chosen.append(worker)
    return chosen


def draw(rng):
    k, n = int(rng.integers(1, 40)), int(rng.integers(1, 10))
    kind = rng.integers(3)
    if kind == 0:
        costs = rng.integers(0, 4, (k, n), dtype=np.int32)
    elif kind == 1:
        costs = rng.integers(0, 2**31, (k, n)).astype(np.int32)
    else:
        costs = rng.random((k, n), dtype=np.float32)
    capacities = rng.multinomial(k, np.ones(n) / n).astype(np.int32)
    prices = None if rng.random() < 0.5 else rng.integers(-5, 5, n)
    return costs, capacities, prices


def test_rank_equals_sorting_by_the_criterion():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        costs, capacities, prices = draw(rng)
        criterion = CRITERIA[rng.integers(4)]
        priced = costs.astype(np.float64) + (0 if prices is None else prices)
        values = [criterion_value(row, criterion) for row in priced[:, capacities > 0].tolist()]
        expected = sorted(range(len(costs)), key=lambda i: (-values[i], i))
        assert solver.rank(costs, capacities, criterion, prices).tolist() == expected


def test_greedy_equals_the_paper():
    rng = np.random.default_rng(2)
    for _ in range(2000):
        costs, capacities, prices = draw(rng)
        order = rng.permutation(len(costs))[: rng.integers(len(costs) + 1)].astype(np.uint32)
        priced = costs.astype(np.float64)
        expected = greedy(priced, capacities.tolist(), order, np.zeros(costs.shape[1]) if prices is None else prices)
        assert solver.greedy(costs, capacities, order, prices).tolist() == expected


def test_theorem_1_bounds_the_greedy_error():
    """ESD Theorem 1: row i of equal workloads m pays at most its (i // m + 1)-th smallest cost.

    With unequal workloads, at most as many workers are full as the smallest workloads fit into i rows.
    """
    rng = np.random.default_rng(3)
    for trial in range(500):
        n = int(rng.integers(1, 9))
        m = int(rng.integers(1, 12))
        capacities = np.full(n, m, np.int32) if trial % 2 else rng.integers(1, 12, n).astype(np.int32)
        k = int(capacities.sum())
        costs = rng.integers(0, 50, (k, n), dtype=np.int32)
        chosen = solver.greedy(costs, capacities, np.arange(k, dtype=np.uint32))
        filled = np.cumsum(np.sort(capacities))
        for i in range(k):
            full = int(np.searchsorted(filled, i, side="right"))
            assert trial % 2 == 0 or full == i // m
            assert costs[i, chosen[i]] <= np.sort(costs[i])[full]


def test_the_ascent_gives_up_at_its_pass_limit():
    rng = np.random.default_rng(4)
    costs = (np.arange(8) * 100 + rng.integers(0, 100, (1024, 8))).astype(np.int32)
    capacities = np.full(8, 128, np.int32)
    patient = solver.solve(costs, capacities, algorithm="dual", pass_limit=1000)
    hasty = solver.solve(costs, capacities, algorithm="dual", pass_limit=3)
    assert (patient.algorithm, patient.augmentations) == ("dual", 0)
    assert patient.passes > 3
    assert (hasty.algorithm, hasty.passes) == ("paths", 3)
    assert hasty.augmentations > 0
    np.testing.assert_array_equal(hasty.assignment, patient.assignment)
    np.testing.assert_array_equal(hasty.prices, patient.prices)


def test_auto_chooses_by_the_kind_of_costs():
    rng = np.random.default_rng(5)
    capacities = np.full(4, 8, np.int32)
    integers = rng.integers(0, 100, (32, 4), dtype=np.int32)
    assert solver.solve(integers, capacities).algorithm == "dual"
    assert solver.solve(integers / np.float32(4), capacities).algorithm == "dual"
    assert solver.solve(rng.random((32, 4)), capacities).algorithm == "paths"


def test_optimal_prices_need_one_pass():
    rng = np.random.default_rng(6)
    costs = rng.integers(0, 100, (256, 8), dtype=np.int32)
    capacities = np.full(8, 32, np.int32)
    cold = solver.solve(costs, capacities)
    warm = solver.solve(costs, capacities, cold.prices)
    assert warm.passes == 1 < cold.passes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solver.solve(np.ones((2, 1), np.int32), np.array([2], np.int32), None, "simplex"), "'simplex'"),
        (lambda: solver.solve(np.ones((2, 1), np.int32), np.array([2], np.int32), pass_limit=-1), "pass_limit is -1"),
        (lambda: solver.rank(np.ones((2, 1), np.int32), np.array([2], np.int32), "max"), "criterion 'max'"),
        (lambda: solver.rank(np.ones((2, 1), np.int32), np.array([0], np.int32), "min2-min"), "capacities sum to 0"),
        (
            lambda: solver.greedy(np.ones((2, 1), np.int32), np.array([2], np.int32), np.array([2], np.uint32)),
            r"order\[0\] is 2",
        ),
        (
            lambda: solver.greedy(np.ones((2, 1), np.int32), np.array([1], np.int32), np.array([0, 1], np.uint32)),
            "capacities sum to 1, too little for 2 samples",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_types_are_refused():
    with pytest.raises(TypeError):
        solver.solve(np.ones((2, 1), np.int32), np.array([2], np.int64))
    with pytest.raises(TypeError):
        solver.solve(np.ones((4, 4), np.int32)[:, ::2], np.array([2, 2], np.int32))


def by_value(values, capacities):
    """Rendezvous hashing as the stub has it."""
    mixed = mix64(values)
    draws = (mix64(mixed[:, None] ^ mix64(np.arange(1, len(capacities) + 1, dtype=np.uint64))) >> np.uint64(11)) + 1
    room = list(capacities)
    chosen = np.empty(len(values), np.int32)
    for i in sorted(range(len(values)), key=lambda i: (mixed[i], i)):
        shares = zip(draws[i].tolist(), capacities, strict=True)
        distances = [-math.log(draw * 2.0**-53) / share if share else 0 for draw, share in shares]
        chosen[i] = min((j for j in range(len(room)) if room[j] > 0), key=distances.__getitem__)
        room[chosen[i]] -= 1
    return chosen


def draw_values(rng):
    k, n = int(rng.integers(1, 60)), int(rng.integers(1, 10))
    values = rng.integers(0, int(rng.choice([1, 5, 100])), k).astype(np.uint64)
    return values, rng.multinomial(k, rng.dirichlet(np.ones(n))).astype(np.int32)


def test_assignment_by_value_equals_its_reference():
    rng = np.random.default_rng(5)
    for _ in range(300):
        values, capacities = draw_values(rng)
        np.testing.assert_array_equal(solver.assign_by_value(values, capacities), by_value(values, capacities))


def test_workers_have_values_in_proportion_to_their_shares():
    values = np.arange(20_000, dtype=np.uint64)
    shares = np.array([12_000, 4_000, 4_000], np.int32)
    worker_of = solver.assign_by_value(values, shares)
    few = solver.assign_by_value(values[:200], np.array([120, 40, 40], np.int32))
    assert (few == worker_of[:200]).mean() > 0.9  # those that differ found their worker full
    assert np.bincount(worker_of).tolist() == shares.tolist()


def profile(batches, rooms, link_costs, field):
    """Pulls and update pushes by the three states of docs/semantics.md, nothing ever leaving a cache."""
    cost, holders, split = 0, defaultdict(set), {}
    for ids, room in zip(batches, rooms, strict=True):
        worker_of = by_value(ids[:, field], room)
        trainers = defaultdict(set)
        for sample, worker in zip(ids.tolist(), worker_of.tolist(), strict=True):
            for x in sample:
                trainers[x].add(worker)
        for x, now in trainers.items():
            if split.get(x):
                cost += sum(link_costs[j] for j in holders[x] | now)
                cost += sum(link_costs[j] for j in holders[x] & now)  # pushed, then pulled
            else:
                cost += sum(link_costs[j] for j in now - holders[x])
                if now - holders[x]:
                    cost += sum(link_costs[j] for j in holders[x])
            holders[x], split[x] = now, len(now) > 1
    return int(cost)


def test_the_profile_of_fields_equals_its_reference():
    rng = np.random.default_rng(6)
    for _ in range(60):
        n, fields = int(rng.choice([1, 2, 3, 4, 5, 80])), int(rng.integers(1, 4))
        sizes = rng.integers(1, 20, int(rng.integers(1, 5)))
        batches = [rng.integers(0, 12, (k, fields)).astype(np.uint64) for k in sizes]
        rooms = np.array([rng.multinomial(k, np.ones(n) / n) for k in sizes], np.int32)
        link_costs = rng.integers(0, 11, n).astype(np.int32)
        expected = [profile(batches, rooms, link_costs.tolist(), f) for f in range(fields)]
        assert solver.profile_fields(np.concatenate(batches), rooms, link_costs).tolist() == expected


@pytest.mark.parametrize(
    ("capacities", "link_costs", "message"),
    [
        ([[1, 1]], [1, 1, 1], "link_costs of 3"),
        ([[2, 1]], [1, 1], "sum to 3, there are 2"),
        ([[3, -1]], [1, 1], "negative"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(capacities, link_costs, message):
    with pytest.raises(ValueError, match=message):
        solver.profile_fields(
            np.zeros((2, 3), np.uint64), np.array(capacities, np.int32), np.array(link_costs, np.int32)
        )
