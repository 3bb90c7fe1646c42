"""Every solver that the contract binds: the CPU's, the CUDA kernels emulated on the CPU, and the kernels themselves."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.dispatcher.solvers import Costs, Prices, Solution, get_solver
from esd.dispatcher.solvers.cuda.answer import DeviceAnswer
from esd.dispatcher.solvers.cuda.solver import check
from esd.dispatcher.solvers.exact import solve_exactly
from esd.dispatcher.solvers.native import NativeSolver
from esd.native import cuda as native


class EmulatedSolver:
    """A CUDA solver whose block is played by one CPU thread.

    Every solve has another number of threads, and at every step the threads take turns in another order.
    """

    def __init__(self, algorithm: Literal["dual", "hungarian"]) -> None:
        self._algorithm = algorithm
        self.name = f"emulated-{algorithm}-cuda"
        self._random = np.random.default_rng(12)

    def solve(self, costs: Costs, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        def solve(each: Costs, start: Prices | None) -> Solution:
            threads, seed = int(self._random.integers(1, 65)), int(self._random.integers(2**32))
            return self.answer(each, capacities, start, threads, seed).solution()

        return solve_exactly(solve, costs, prices)

    def answer(
        self,
        costs: Costs,
        capacities: NDArray[np.int32],
        prices: Prices | None = None,
        threads: int = 32,
        seed: int = 0,
    ) -> DeviceAnswer:
        check(costs.shape, costs.dtype, capacities, prices)
        start = None if prices is None else np.asarray(prices, np.float64)
        samples, workers = costs.shape
        answer = DeviceAnswer.empty(samples, workers, costs.dtype)
        native.emulate(
            costs,
            capacities,
            start,
            self._algorithm,
            threads,
            seed,
            answer.report,
            answer.assignment,
            answer.chosen_costs,
        )
        if answer.bad_entry is not None:
            NativeSolver("auto").solve(costs, capacities)  # refuses them
        return answer


CPU_CASES = [pytest.param(get_solver(name), id=name) for name in ("auto", "dual", "paths")]
SOLVER_CASES = [
    *CPU_CASES,
    *(pytest.param(solver, id=solver.name) for solver in (EmulatedSolver("dual"), EmulatedSolver("hungarian"))),
    *(pytest.param(get_solver(name), id=name, marks=pytest.mark.gpu) for name in ("dual-cuda", "hungarian-cuda")),
]
