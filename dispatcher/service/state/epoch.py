"""One membership of a job: who trains, from where on, and their plans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.service.state.plan_log import PlanLog
from protos import dispatcher_pb2 as pb
from services.domain.errors import StaleEpoch
from services.domain.worker_set import WorkerSet


@dataclass(slots=True)
class Epoch:
    """An epoch from its beginning until a worker is lost, or the job is over.

    Attributes:
        number: rises from epoch to epoch; in all plans and requests, so that nothing of an old one does harm.
        first: its first iteration.
        members: the slots that train.
        plans: of this epoch.
        reloads: per slot, what a cache must hold at the beginning; empty when all caches begin empty.
        trained: the first iteration that not all have confirmed.
        cause: why it ended early.
        ended: when, on the monotonic clock.
    """

    number: int
    first: int
    members: WorkerSet
    plans: PlanLog
    reloads: Sequence[pb.PlanMessage] = ()
    trained: int = 0
    cause: str = ""
    ended: float = 0.0

    @property
    def over(self) -> bool:
        """Whether it has ended early."""
        return bool(self.cause)

    def end(self, cause: str) -> None:
        """Ends it; from now on everyone who waits on it is told so."""
        self.cause = cause
        self.ended = time.monotonic()

    def check(self, number: int | None = None) -> bool:
        """True while the epoch goes on, and is the one that is meant.

        Raises:
            StaleEpoch: it is over, or the caller is in another one.
        """
        if self.over:
            raise StaleEpoch(f"epoch {self.number} is over: {self.cause}")
        if number is not None and number != self.number:
            raise StaleEpoch(f"epoch {number} is over, the job is in epoch {self.number}")
        return True
