"""Answers to costs of any range are the cheapest, with gap 0 only then; an infinite cost forbids a place."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import esd
from esd.dispatcher.solvers import get_solver
from esd.dispatcher.solvers.exact import holds
from esd.services.domain.errors import InvalidArgument
from tests.support.solvers import EmulatedSolver

SOLVERS = [get_solver("dual"), get_solver("paths"), EmulatedSolver("dual"), EmulatedSolver("hungarian")]
PAIRS = np.array([2, 2, 2], np.int32)
CHOICES = np.array([each for each in product(range(3), repeat=6) if all(each.count(w) == 2 for w in range(3))])


def cheapest(costs):
    """The least cost of six samples on three workers, of all 90 assignments."""
    return costs.astype(np.float64)[np.arange(6), CHOICES].sum(axis=1).min()


def check(solver, costs):
    found = solver.solve(costs, PAIRS)
    chosen = costs.astype(np.float64)[np.arange(6), found.assignment].sum()
    assert np.bincount(found.assignment, minlength=3).tolist() == [2, 2, 2]
    assert found.gap == 0
    assert chosen <= cheapest(costs) * (1 + 1e-14)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda each: each.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("forbidden", [1e12, 1e13, 1e16, 1e30])
def test_dear_places_do_not_hide_the_others(solver, dtype, forbidden):
    rng = np.random.default_rng(0)
    for trial in range(25):
        costs = rng.random((6, 3)).astype(dtype)
        dear = rng.random((6, 3)) < 0.25
        dear[:, trial % 3] = False  # a whole worker, so that others are needed
        costs[dear] = forbidden
        check(solver, costs)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda each: each.name)
def test_costs_of_a_wide_range(solver):
    rng = np.random.default_rng(1)
    for _ in range(50):
        check(solver, 10.0 ** rng.uniform(-12, 12, (6, 3)))


def test_all_solvers_agree():
    rng = np.random.default_rng(2)
    for _ in range(20):
        costs = 10.0 ** rng.uniform(-20, 20, (24, 4))
        answers = [solver.solve(costs, np.full(4, 6, np.int32)).assignment.tolist() for solver in SOLVERS]
        assert answers == [answers[0]] * len(SOLVERS)


def test_a_larger_problem_against_scipy():
    rng = np.random.default_rng(3)
    costs = rng.random((120, 6))
    costs[rng.random(costs.shape) < 0.3] = 1e18
    found = esd.hybrid_dis(costs, [20] * 6)
    copies = np.repeat(costs, 20, axis=1)
    expected = copies[linear_sum_assignment(np.minimum(copies, 1e6))].sum()
    assert found.gap == 0
    assert costs[np.arange(120), found.assignment].sum() == pytest.approx(expected, rel=1e-12)


def test_a_sample_that_may_go_nowhere_is_named():
    with pytest.raises(InvalidArgument, match=r"sample 1 may go to no worker: each of its costs is inf"):
        esd.hybrid_dis(np.array([[1.0, 2.0], [np.inf, np.inf]]), [1, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinite_cost_forbids_a_place(dtype):
    rng = np.random.default_rng(4)
    for trial in range(30):
        costs = rng.random((6, 3)).astype(dtype)
        forbidden = rng.random((6, 3)) < 0.25
        forbidden[:, trial % 3] = False
        costs[forbidden] = np.inf
        if np.isinf(cheapest(costs)):
            with pytest.raises(InvalidArgument, match=r"sample \d can only go to worker \d, .* \(forbidden\)"):
                esd.hybrid_dis(costs, [2, 2, 2])
            continue
        found = esd.hybrid_dis(costs, [2, 2, 2])
        assert found.gap == 0
        assert found.cost == pytest.approx(cheapest(costs), rel=1e-12)


def test_what_fixed_point_holds():
    assert holds(np.array([[1, 2**30]], np.int32))
    assert holds(np.array([[0.0, 0.0]]))
    assert holds(np.array([[1.0, 2.0**-49]]))
    assert not holds(np.array([[1.0, 2.0**-52]]))
    assert not holds(np.array([[1e300, 1e-300]]))
