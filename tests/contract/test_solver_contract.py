"""The promises of every exact solver: the optimum, its proof, and always the same assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from esd.dispatcher.solvers import get_solver
from esd.services.domain.errors import InvalidArgument
from tests.support.solvers import CPU_CASES, SOLVER_CASES

INSTANCES = 10_000


def draw_capacities(k, n, rng):
    """Equal, unequal, or with workers that take nothing."""
    kind = rng.integers(3)
    if kind == 0:
        return np.array([k // n + (j < k % n) for j in range(n)], np.int32)
    weights = rng.integers(0, 3, n) if kind == 1 else rng.random(n)
    weights = weights + (weights.sum() == 0)
    return rng.multinomial(k, weights / weights.sum()).astype(np.int32)


COSTS = (
    lambda k, n, rng: rng.integers(0, 3, (k, n), dtype=np.int32),  # heavy ties
    lambda k, n, rng: rng.integers(0, 521, (k, n), dtype=np.int32),
    lambda k, n, rng: rng.integers(0, 2**31, (k, n)).astype(np.int32),  # beyond 32-bit sums
    lambda k, n, rng: np.outer(rng.integers(0, 99, k), rng.integers(0, 99, n)).astype(np.int32),
    lambda k, n, rng: (np.arange(n) * 9 + rng.integers(0, 9, (k, n))).astype(np.int32),  # all prefer worker 0
    lambda k, n, rng: rng.random((k, n), dtype=np.float32),
    lambda k, n, rng: rng.integers(0, 4, (k, n)) / np.float32(8),
    lambda k, n, rng: rng.random((k, n)) * 10.0 ** rng.integers(-5, 5, (k, n)),
)


def draw(rng):
    """One small instance; every twentieth has up to 64 workers."""
    n = int(rng.integers(9, 65)) if rng.random() < 0.05 else int(rng.integers(1, 9))
    k = int(rng.integers(1, 50)) if rng.random() < 0.95 else int(rng.integers(50, 400))
    costs = COSTS[rng.integers(len(COSTS))](k, n, rng)
    return costs, draw_capacities(k, n, rng)


def optimum(costs, capacities):
    """The paper's way (§4.3): every column m_j times, then a square assignment problem."""
    columns = np.repeat(np.arange(len(capacities)), capacities)
    rows, chosen = linear_sum_assignment(costs[:, columns].astype(np.float64))
    return costs[rows, columns[chosen]].sum(dtype=np.float64), columns[chosen]


def canonical_prices(costs, capacities, assignment):
    """Negated shortest distances from the first worker with capacity over the cheapest exchanges."""
    n = len(capacities)
    active = np.flatnonzero(capacities)
    exchange = np.full((n, n), np.inf)
    for h in active:
        mine = costs[assignment == h].astype(np.float64)
        exchange[h] = (mine - mine[:, [h]]).min(axis=0)
    for middle in active:
        exchange = np.minimum(exchange, exchange[:, [middle]] + exchange[[middle], :])
    prices = -exchange[active[0]]
    prices[active[0]] = 0
    return prices


@pytest.fixture(scope="module")
def instances():
    """Random instances, each with its least cost."""
    rng = np.random.default_rng(3)
    drawn = [draw(rng) for _ in range(INSTANCES)]
    return [(costs, capacities, optimum(costs, capacities)[0]) for costs, capacities in drawn]


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_random_instances_are_solved_to_the_proven_optimum(instances, solver):
    for costs, capacities, best in instances:
        found = solver.solve(costs, capacities)
        assert found.cost == pytest.approx(best, rel=1e-12, abs=0)
        assert found.assignment.dtype == np.int32
        assert (np.bincount(found.assignment, minlength=len(capacities)) == capacities).all()
        assert found.gap == 0


@pytest.mark.parametrize("solver", CPU_CASES)
def test_more_workers_than_a_word_has_bits_get_the_optimum_its_prices_and_one_assignment(solver):
    rng = np.random.default_rng(8)
    for n in range(65, 129):
        for draw_costs in COSTS:
            costs = draw_costs(int(rng.integers(1, 400)), n, rng)
            capacities = draw_capacities(len(costs), n, rng)
            best, assignment = optimum(costs, capacities)
            found = solver.solve(costs, capacities)
            assert found.cost == pytest.approx(best, rel=1e-12, abs=0)
            assert (np.bincount(found.assignment, minlength=n) == capacities).all()
            assert found.gap == 0
            if costs.dtype == np.int32:
                np.testing.assert_array_equal(found.prices, canonical_prices(costs, capacities, assignment))
            np.testing.assert_array_equal(found.assignment, get_solver("auto").solve(costs, capacities).assignment)


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_prices_prove_the_optimum(solver):
    rng = np.random.default_rng(4)
    for _ in range(1000):
        costs, capacities = draw(rng)
        found = solver.solve(costs, capacities)
        reduced = costs.astype(np.float64) + found.prices
        least = reduced.min(axis=1)
        chosen = reduced[np.arange(len(costs)), found.assignment]
        tolerance = 0 if costs.dtype == np.int32 else 1e-15 * costs.max()
        assert (chosen - least <= tolerance).all()
        assert least.sum() - (found.prices * capacities).sum() == pytest.approx(found.cost, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_prices_are_the_least_optimal_ones(solver):
    rng = np.random.default_rng(5)
    for _ in range(300):
        costs, capacities = draw(rng)
        if costs.dtype != np.int32:
            continue
        _, assignment = optimum(costs, capacities)
        found = solver.solve(costs, capacities)
        np.testing.assert_array_equal(found.prices, canonical_prices(costs, capacities, assignment))


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_the_start_does_not_change_the_result(solver):
    rng = np.random.default_rng(6)
    for _ in range(1000):
        costs, capacities = draw(rng)
        expected = get_solver("auto").solve(costs, capacities)
        start = rng.uniform(-2, 2, costs.shape[1]) * rng.choice([0.1, 1, 1e20]) * costs.max()
        if costs.dtype == np.int32:
            start = np.clip(start, -(2**62), 2**62).astype(np.int64)
        found = solver.solve(costs, capacities, start)
        np.testing.assert_array_equal(found.assignment, expected.assignment)
        np.testing.assert_array_equal(found.prices, expected.prices)
        assert found.cost == expected.cost


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_permuted_samples_cost_the_same(solver):
    """Cost and prices stay, and so does how many samples of each tight set a worker gets.

    Which of the samples with one tight set goes where is decided by their order in the batch.
    """
    rng = np.random.default_rng(7)
    for _ in range(500):
        costs, capacities = draw(rng)
        if costs.dtype != np.int32:
            continue
        order = rng.permutation(len(costs))
        found = solver.solve(costs, capacities)
        permuted = solver.solve(costs[order], capacities)
        assert permuted.cost == found.cost
        np.testing.assert_array_equal(permuted.prices, found.prices)
        assert tight_sets(costs[order], permuted, capacities) == tight_sets(costs, found, capacities)


def tight_sets(costs, solution, capacities):
    reduced = np.where(capacities > 0, costs + solution.prices, np.iinfo(np.int64).max)
    tight = reduced == reduced.min(axis=1, keepdims=True)
    return sorted((row.tobytes(), worker) for row, worker in zip(tight, solution.assignment.tolist(), strict=True))


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_a_unique_optimum_permutes_with_the_samples(solver):
    rng = np.random.default_rng(8)
    costs = rng.random((512, 8))
    order = rng.permutation(512)
    capacities = np.full(8, 64, np.int32)
    found = solver.solve(costs, capacities)
    permuted = solver.solve(costs[order], capacities)
    np.testing.assert_array_equal(permuted.assignment, found.assignment[order])


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_tiny_instances_equal_brute_force(solver):
    rng = np.random.default_rng(9)
    for _ in range(200):
        k, n = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        costs = rng.integers(0, 10, (k, n), dtype=np.int32)
        capacities = draw_capacities(k, n, rng)
        found = solver.solve(costs, capacities)
        assert found.cost == min(
            sum(int(costs[i, j]) for i, j in enumerate(choice))
            for choice in itertools.product(range(n), repeat=k)
            if (np.bincount(choice, minlength=n) == capacities).all()
        )


@pytest.mark.parametrize("solver", SOLVER_CASES)
@pytest.mark.parametrize("draw_costs", COSTS)
def test_many_workers(solver, draw_costs):
    rng = np.random.default_rng(10)
    costs = draw_costs(2048, 64, rng)
    capacities = draw_capacities(2048, 64, rng)
    found = solver.solve(costs, capacities)
    assert found.gap == 0
    assert (np.bincount(found.assignment, minlength=64) == capacities).all()
    np.testing.assert_array_equal(found.assignment, get_solver("paths").solve(costs, capacities).assignment)


@pytest.mark.parametrize("solver", SOLVER_CASES)
@pytest.mark.parametrize("factor", [2.0**-1074, 2.0**-1030, 2.0**-100, 2.0**1000])
def test_the_scale_of_floats_does_not_matter(solver, factor):
    rng = np.random.default_rng(11)
    integers = rng.integers(0, 1000, (60, 5), dtype=np.int32)
    capacities = np.full(5, 12, np.int32)
    expected = solver.solve(integers, capacities)
    found = solver.solve(integers * factor, capacities)
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    np.testing.assert_array_equal(found.prices, expected.prices * factor)
    assert found.cost == expected.cost * factor


GOOD = np.ones((4, 2), np.int32)
HALF = np.array([2, 2], np.int32)


@pytest.mark.parametrize("solver", SOLVER_CASES)
@pytest.mark.parametrize(
    ("costs", "capacities", "prices", "message"),
    [
        (np.full((4, 2), np.nan), HALF, None, r"costs\[0, 0\] is nan"),
        (np.array([[1, np.inf]] * 4, np.float32), HALF, None, r"costs\[0, 1\] is inf"),
        (np.array([[1, 1], [1, -3], [1, 1], [1, 1]], np.int32), HALF, None, r"costs\[1, 1\] is -3"),
        (np.array([[1, 1], [1, 1], [1, 1], [-0.5, 1]]), HALF, None, r"costs\[3, 0\] is -0.5"),
        (GOOD, np.array([2, 1], np.int32), None, "capacities sum to 3.* 4"),
        (GOOD, np.array([5, -1], np.int32), None, "capacity of worker 1 is -1"),
        (GOOD, np.array([2, 1, 1], np.int32), None, "3 capacities given for 2 workers"),
        (np.ones((0, 2), np.int32), np.zeros(2, np.int32), None, "0 rows"),
        (np.ones((4, 0), np.int32), np.zeros(0, np.int32), None, "0 columns"),
        (np.ones((129, 129), np.int32), np.ones(129, np.int32), None, "129 (columns.*1..128|workers.*most 64)"),
        (GOOD, HALF, np.array([0.0, np.nan]), "price of worker 1 is nan"),
        (GOOD, HALF, np.zeros(3), "3 prices given for 2 workers"),
        (GOOD, HALF, np.zeros(2, np.float32), "prices must be int64 or float64"),
        (GOOD.astype(np.int64), HALF, None, "costs must be int32, float32 or float64"),
    ],
)
def test_bad_input_is_refused_by_name(solver, costs, capacities, prices, message):
    with pytest.raises(InvalidArgument, match=message):
        solver.solve(costs, capacities, prices)


def test_unknown_solver():
    with pytest.raises(InvalidArgument, match="'simplex' is unknown"):
        get_solver("simplex")
