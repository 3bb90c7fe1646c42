"""All bytes on the workers' links in a simulation, by kind and direction, and the time that they take."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.feedback import Feedback
from esd.services.domain.dense_roles import DenseRole, resting
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.framing import framing_bytes
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import LINK_DIRECTIONS

_KINDS = ("rows", "gradients", "dense", "plans", "framing")


class LinkBytes:
    """Adds up the bytes of every worker's link: rows, plans with their samples, and the sums of dense gradients.

    It leaves out flushes, checkpoints, reports and acknowledgements. A row that comes straight from another worker
    counts as one that is pulled, of a row that was never trained only the request counts, and the frames of HTTP/2 and
    TCP count as if every kind were one message per iteration.

    Args:
        job: the job, whose way to sum dense gradients is known.
        dense_shapes: of the parameters whose gradients take the links; none where they take another network.

    Attributes:
        counted: int64 [n] for each kind and direction, as `IterationReport` has them.
        makespan_seconds: sum over iterations of the slowest worker's time: rows, plans, dense sums and computation.
    """

    def __init__(self, job: JobSpec, dense_shapes: Iterable[tuple[int, ...]]) -> None:
        way, values = job.dense_sum, job.model.dense_optimizer.values_per_parameter
        self.counted = {(kind, end): np.zeros(job.workers, np.int64) for kind in _KINDS for end in LINK_DIRECTIONS}
        self.makespan_seconds = 0.0
        self._sizes = RowSizes(job.tables, job.features)
        floats = way.dense_floats(dense_shapes, values)
        self._dense = way.sent_bytes(floats, job.workers)
        self._sends_zeros = type(way) is not ServerSum  # else a worker without samples sends names alone
        self._state = values * self._dense  # of a worker that returns

    def add(self, decision: Decision, seconds: NDArray[np.float64], *, counts: bool) -> Feedback:
        """Adds an iteration.

        Args:
            decision: the iteration.
            seconds: float64 [n], each worker's time for computation and for the rows that it is charged for.
            counts: whether the iteration counts in the sums.

        Returns:
            The feedback of workers with this time, and with the time of plans and dense sums on their links.
        """
        rows_up, gradients, rows_down = self._sizes.carried_bytes(decision.columns)
        plans = np.array([len(message) for message in decision.messages], np.int64)
        dense_up, dense_down = self._dense_bytes(decision)
        with_plans = seconds + decision.cost_model.seconds_of(plans - decision.unsent_bytes)
        summing = decision.cost_model.seconds_of(np.maximum(dense_up, dense_down))
        if counts:
            self._count("up", rows=rows_up, gradients=gradients, dense=dense_up)
            self._count("down", rows=rows_down, dense=dense_down, plans=plans)
            self.makespan_seconds += float((with_plans + summing).max())
        return Feedback(with_plans, np.zeros_like(with_plans), dense_seconds=summing)

    def _dense_bytes(self, decision: Decision) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the bytes that each worker sends, and receives, for dense sums and for the state of a return."""
        roles = decision.roles
        sends = (decision.workloads > 0) | self._sends_zeros
        gets = ~resting(roles)
        up = self._dense * sends + self._state * (roles == DenseRole.GIVES)
        down = self._dense * gets + self._state * (roles == DenseRole.RETURNS)
        return up + decision.reduced_bytes, down + decision.reduced_bytes

    def _count(self, direction: str, **sizes: NDArray[np.int64]) -> None:
        for kind, carried in sizes.items():
            added = [framing_bytes(size) if size else 0 for size in carried.tolist()]
            self.counted[kind, direction] += carried
            self.counted["framing", direction] += np.array(added, np.int64)
