"""History: samples go to the workers that trained their ids before. A baseline independent of caches and links."""

from __future__ import annotations

import time

import numpy as np

from esd.dispatcher.core.mechanisms.draws import content_order
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.dispatcher.solvers import get_solver


class History:
    """Sends samples to the workers with the largest share of the past trainings of their ids.

    The score of a sample at a worker is the sum of these shares over its ids. The assignment maximises the sum of
    scores over the batch, under the workloads.
    """

    lookahead = 0

    def __init__(self) -> None:
        self._solver = get_solver("auto")

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Assigns the batch by an exact solver, with samples ordered by their content."""
        started = time.perf_counter()
        shares = problem.engine.training_shares()
        order = content_order(problem.batch)
        costs = shares.max() - shares[order]
        scored = time.perf_counter()
        solution = self._solver.solve(costs, problem.capacities)
        workers = np.empty(len(order), np.int32)
        workers[order] = solution.assignment
        return Assignment(workers, 0.0, scored - started, self._solver.name, solution.gap)
