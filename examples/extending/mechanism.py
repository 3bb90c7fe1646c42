"""A dispatch mechanism of one's own: samples go by the value of their first field."""

from __future__ import annotations

import numpy as np

from esd.dispatcher.core.mechanisms import Assignment, DispatchInput
from esd.services.domain.ids import mix64
from esd.services.domain.jobs import JobSpec


class ByField:
    """Trains samples that have the same value in the first field at the same worker, as far as workloads allow.

    A value's hash does not change, so that it stays about where it was in the iteration before.
    """

    lookahead = 0  # it looks at no batch but the one to assign

    def __init__(self, job: JobSpec) -> None:
        """A mechanism is built from the job, whose options it may read; this one has none."""

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Sorts the samples by the hash, and gives the first capacities[0] of them to worker 0, and so on."""
        order = np.argsort(mix64(problem.batch.first_ids[:, 0]), kind="stable")
        workers = np.empty(len(order), np.int32)
        workers[order] = np.repeat(np.arange(len(problem.capacities), dtype=np.int32), problem.capacities)
        return Assignment(workers)
