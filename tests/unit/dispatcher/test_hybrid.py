"""HybridDis: the partition, its two solvers, and input at the edge."""

from __future__ import annotations

import numpy as np
import pytest

from esd.dispatcher.core.hybrid import hybrid_dis
from esd.dispatcher.solvers import get_solver
from esd.native import solver as native
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import Criterion

AUTO = get_solver("auto")


def draw(rng, k=60, n=4):
    costs = rng.integers(0, 30, (k, n), dtype=np.int32)
    return costs, rng.multinomial(k, np.ones(n) / n)


@pytest.mark.parametrize("criterion", Criterion)
@pytest.mark.parametrize("alpha", [0, 0.125, 0.29, 0.5, 0.999, 1])
def test_every_sample_goes_somewhere_and_workloads_are_met(criterion, alpha):
    rng = np.random.default_rng(1)
    for _ in range(50):
        costs, capacities = draw(rng, int(rng.integers(1, 80)), int(rng.integers(1, 7)))
        result = hybrid_dis(costs, capacities, alpha, criterion, AUTO)
        assert (np.bincount(result.assignment, minlength=len(capacities)) == capacities).all()
        assert result.cost == costs[np.arange(len(costs)), result.assignment].sum()
        assert isinstance(result.cost, int)
        assert len(result.optimal_rows) == sum(int(m * alpha + 1e-9) for m in capacities)


def test_optimal_rows_have_the_largest_criterion():
    rng = np.random.default_rng(2)
    costs, capacities = draw(rng)
    result = hybrid_dis(costs, capacities, 0.5, Criterion.MIN2_MIN, AUTO)
    ascending = np.sort(costs, axis=1)
    regret = ascending[:, 1] - ascending[:, 0]
    heuristic = np.setdiff1d(np.arange(len(costs)), result.optimal_rows)
    assert regret[result.optimal_rows].min() >= regret[heuristic].max()
    assert (np.diff(result.optimal_rows.astype(np.int64)) > 0).all()


def test_opt_is_optimal_on_its_rows():
    rng = np.random.default_rng(3)
    costs, capacities = draw(rng)
    result = hybrid_dis(costs, capacities, 0.5, Criterion.MIN2_MIN, AUTO)
    alone = AUTO.solve(costs[result.optimal_rows], (capacities // 2).astype(np.int32))
    np.testing.assert_array_equal(result.assignment[result.optimal_rows], alone.assignment)
    np.testing.assert_array_equal(result.prices, alone.prices)
    assert (result.solver, result.gap) == ("dual", 0)


def test_alpha_1_is_the_optimum_and_alpha_0_the_heuristic():
    rng = np.random.default_rng(4)
    costs, capacities = draw(rng)
    exact = hybrid_dis(costs, capacities, 1, Criterion.MIN2_MIN, AUTO)
    heuristic = hybrid_dis(costs, capacities, 0, Criterion.MIN2_MIN, AUTO)
    assert exact.cost == AUTO.solve(costs, capacities.astype(np.int32)).cost < heuristic.cost
    assert exact.optimal_rows.tolist() == list(range(len(costs)))
    assert (heuristic.solver, heuristic.prices, heuristic.seconds) == ("none", None, 0.0)
    assert len(heuristic.optimal_rows) == 0


def test_heu_gives_each_sample_the_cheapest_worker_with_room():
    costs = np.array([[0, 1], [0, 9], [0, 5], [0, 2]], np.int32)
    result = hybrid_dis(costs, [2, 2], 0, Criterion.MIN2_MIN, AUTO)
    assert result.assignment.tolist() == [1, 0, 0, 1]  # samples 1 and 2 would lose most


@pytest.mark.parametrize("criterion", Criterion)
@pytest.mark.parametrize("most", [3, 1000])
def test_theorem_1_bounds_the_error_of_the_heuristic(criterion, most):
    """The i-th sample that Heu gives away costs at most the (i // m + 1)-th least of its row; the bound is met."""
    rng = np.random.default_rng(6)
    tight = 0
    for _ in range(40):
        n, m = int(rng.integers(1, 9)), int(rng.integers(1, 12))
        costs = (rng.integers(0, most, (n * m, n)) + rng.integers(0, most, n)).astype(np.int32)
        result = hybrid_dis(costs, np.full(n, m), 0, criterion, AUTO)
        order = native.rank(costs, np.full(n, m, np.int32), criterion.value, None)
        chosen = costs[order, result.assignment[order]]
        bounds = np.sort(costs[order], axis=1)[np.arange(n * m), np.arange(n * m) // m]
        assert (chosen <= bounds).all()
        tight += int((chosen == bounds)[m:].sum())
    assert tight > 0


def test_prices_guide_the_heuristic():
    """Where all prefer one worker, the plain regret misleads; the optimum's prices do not."""
    rng = np.random.default_rng(5)
    costs = (np.arange(8) * 100 + rng.integers(0, 100, (1024, 8))).astype(np.int32)
    capacities = np.full(8, 128)
    exact = hybrid_dis(costs, capacities, 1, Criterion.MIN2_MIN, AUTO)
    plain = hybrid_dis(costs, capacities, 0, Criterion.MIN2_MIN, AUTO)
    guided = hybrid_dis(costs, capacities, 0, Criterion.MIN2_MIN, AUTO, prices=exact.prices)
    assert exact.cost <= guided.cost < plain.cost
    assert guided.cost - exact.cost < 0.05 * (plain.cost - exact.cost)


def test_a_share_is_what_its_decimals_say():
    result = hybrid_dis(np.ones((100, 1), np.int32), [100], 0.29, Criterion.MIN2_MIN, AUTO)
    assert len(result.optimal_rows) == 29  # though int(100 * 0.29) is 28


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64, np.float32, np.float64])
def test_costs_of_any_number_type(dtype):
    rng = np.random.default_rng(6)
    costs, capacities = draw(rng)
    expected = hybrid_dis(costs, capacities, 0.5, Criterion.MIN2_MIN, AUTO)
    found = hybrid_dis(np.asfortranarray(costs.astype(dtype)), capacities.tolist(), 0.5, Criterion.MIN2_MIN, AUTO)
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    assert found.cost == expected.cost


GOOD = np.ones((4, 2), np.int32)


@pytest.mark.parametrize(
    ("costs", "capacities", "alpha", "message"),
    [
        (GOOD, [2, 2], 1.5, "alpha is 1.5"),
        (GOOD, [2, 2], float("nan"), "alpha is nan"),
        (np.ones(4), [2, 2], 1, r"shape \(4,\)"),
        ([[1, 2], [3]], [1, 1], 1, "costs are no array: .* inhomogeneous"),
        (GOOD, [2, [2]], 1, "capacities are no array"),
        (np.ma.masked_equal(np.arange(8).reshape(4, 2), 3), [2, 2], 1, "costs are masked in places: fill these"),
        (GOOD.astype(bool), [2, 2], 1, "dtype bool"),
        (GOOD.astype(complex), [2, 2], 1, "dtype complex128"),
        (np.array([[1, 2**31]] * 4), [2, 2], 1, r"costs\[0, 1\] is 2147483648.*2\^31-1"),
        (np.array([[1, 1], [-(2**40), 1], [1, 1], [1, 1]]), [2, 2], 1, r"costs\[1, 0\] is -1099511627776"),
        (GOOD, [2, 1], 1, "capacities sum to 3.* 4"),
        (GOOD, [5, -1], 1, "capacity of worker 0 is 5"),
        (GOOD, [2, 3], 1, "capacities sum to 5"),
        (GOOD, [4], 1, r"capacities have shape \(1,\)"),
        (GOOD, [2.0, 2.0], 1, "capacities have dtype float64"),
        (np.ones((0, 2)), [0, 0], 1, "0 rows"),
        (np.ones((129, 129)), [1] * 129, 1, "129 columns"),
        (np.full((4, 2), -1), [2, 2], 0, r"costs\[0, 0\] is -1"),
        (np.array([[1, np.nan]] * 4), [2, 2], 0, r"costs\[0, 1\] is nan"),
        (np.array([[1, np.inf]] * 4), [2, 2], 0.5, r"sample \d can only go to worker 1, .*inf \(forbidden\)"),
    ],
)
def test_bad_input_is_refused_by_name(costs, capacities, alpha, message):
    with pytest.raises(InvalidArgument, match=message):
        hybrid_dis(costs, capacities, alpha, Criterion.MIN2_MIN, AUTO)


def test_a_criterion_of_another_kind_is_refused_whatever_alpha_is():
    with pytest.raises(InvalidArgument, match=r"criterion is 'min2-min', it must be one of Criterion.MIN2_MIN, "):
        hybrid_dis(GOOD, [2, 2], 1, "min2-min", AUTO)
