"""History: samples go where their ids were trained before. A yardstick that knows no caches and no links."""

from __future__ import annotations

import time

import numpy as np

from esd.dispatcher.core.mechanisms.draws import content_order
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.dispatcher.solvers import get_training_solver
from esd.services.domain.jobs import JobSpec


class History:
    """Each sample goes where its ids have had the largest share of their trainings.

    The shares of a sample's ids are added up, and the sums of a whole batch are made as large as the workloads allow.
    """

    lookahead = 0

    def __init__(self, job: JobSpec) -> None:
        self._solver = get_training_solver(job.solver)

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Assigns the batch exactly, the samples in order of their content."""
        started = time.perf_counter()
        shares = problem.engine.training_shares()
        order = content_order(problem.batch)
        costs = shares.max() - shares[order]
        scored = time.perf_counter()
        solution = self._solver.solve(costs, problem.capacities)
        workers = np.empty(len(order), np.int32)
        workers[order] = solution.assignment
        return Assignment(workers, 0.0, scored - started, self._solver.name, solution.gap)
