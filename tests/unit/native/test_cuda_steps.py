"""The CUDA kernels' steps on the CPU, beyond the contract of all solvers (tests/contract)."""

from __future__ import annotations

import numpy as np
import pytest

from esd.dispatcher.solvers import get_solver
from esd.native import cuda as native
from testbed.cost_families import FAMILIES
from tests.support.solvers import EmulatedSolver

ALGORITHMS = ("dual", "hungarian")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_equal_to_the_cpu_at_full_block_size(family, algorithm):
    costs = FAMILIES[family](2048, 8, np.random.default_rng(1))
    capacities = np.full(8, 256, np.int32)
    expected = get_solver("paths").solve(costs, capacities)
    answer = EmulatedSolver(algorithm).answer(costs, capacities, threads=native.BLOCK_THREADS, seed=3)
    found = answer.solution()
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    np.testing.assert_array_equal(found.prices, expected.prices)
    assert (found.cost, found.gap, found.solver) == (expected.cost, 0, f"{algorithm}-cuda")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("workers", [6, 40])
def test_threads_and_their_order_change_nothing(algorithm, workers):
    rng = np.random.default_rng(2)
    costs = rng.integers(0, 4, (90, workers), dtype=np.int32)  # heavy ties: many rows compete for each place
    capacities = rng.multinomial(90, np.ones(workers) / workers).astype(np.int32)
    answers = [
        EmulatedSolver(algorithm).answer(costs, capacities, threads=threads, seed=seed)
        for threads in (1, 7, 64, 1024)
        for seed in range(20)
    ]
    assert len({answer.solution().assignment.tobytes() for answer in answers}) == 1
    if algorithm == "dual":  # each of its steps has one outcome
        assert len({answer.report.tobytes() for answer in answers}) == 1


def test_the_ascent_goes_over_to_the_hungarian_algorithm():
    """Costs of ten magnitudes from a start far off would need more than a hundred thousand passes."""
    rng = np.random.default_rng(21)
    costs = rng.random((35, 8)) * 10.0 ** rng.integers(-6, 5, (35, 8))
    capacities = np.array([5, 5, 5, 4, 4, 4, 4, 4], np.int32)
    start = rng.uniform(-2, 2, 8) * costs.max()
    answer = EmulatedSolver("dual").answer(costs, capacities, start)
    assert answer.passes > 1000
    assert answer.phases > 0
    found, expected = answer.solution(), get_solver("paths").solve(costs, capacities)
    assert found.solver == "hungarian-cuda"
    np.testing.assert_array_equal(found.assignment, expected.assignment)


def test_optimal_prices_need_one_pass():
    costs = FAMILIES["esd"](512, 8, np.random.default_rng(4))
    capacities = np.full(8, 64, np.int32)
    cold = EmulatedSolver("dual").answer(costs, capacities)
    warm = EmulatedSolver("dual").answer(costs, capacities, cold.solution().prices)
    assert warm.passes == 1 < cold.passes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1025}, "threads is 1025"),
        ({"assignment": np.zeros(3, np.int32)}, "an output does not fit"),
        ({"report": np.zeros(native.REPORT_WORDS, np.int64)}, "an output does not fit"),
        ({"chosen_costs": np.zeros(4, np.float32)}, "an output does not fit"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {
        "costs": np.ones((4, 2), np.int32),
        "capacities": np.array([2, 2], np.int32),
        "start": None,
        "algorithm": "dual",
        "threads": 8,
        "seed": 0,
        "report": np.zeros(native.REPORT_WORDS + 2, np.int64),
        "assignment": np.zeros(4, np.int32),
        "chosen_costs": np.zeros(4, np.int32),
    }
    with pytest.raises(ValueError, match=message):
        native.emulate(**(arguments | changes))
