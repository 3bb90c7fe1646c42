"""Random dispatch, as in training without embedding scheduling (Herald §3.1, "vanilla")."""

from __future__ import annotations

import numpy as np

from esd.dispatcher.core.mechanisms.draws import draws
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.services.domain.jobs import JobSpec


class Random:
    """Shuffles the samples over the workers' capacities.

    The shuffle depends on (seed, iteration) alone, so that replaying an iteration needs no history.
    """

    lookahead = 0

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Gives worker j capacities[j] samples; all such assignments are equally likely."""
        workers = np.repeat(np.arange(len(problem.capacities), dtype=np.int32), problem.capacities)
        order = np.argsort(draws(self._seed, problem.iteration, len(workers)))  # no two draws are equal
        shuffled = np.empty_like(workers)
        shuffled[order] = workers
        return Assignment(shuffled)
