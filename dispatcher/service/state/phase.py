"""The life of a job, and waiting on it: everyone who waits is let go, with the cause, when the job fails."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dispatcher.service.state.changes import Changes
from services.domain.errors import FailedPrecondition, Unavailable
from services.domain.state import JobPhase

_log = logging.getLogger(__name__)


class Lifecycle:
    """Phase and failure of one job.

    Args:
        name: of the job, for messages.

    Attributes:
        phase: where the job is in its life.
        failure: why it failed; empty unless the phase is FAILED.
    """

    def __init__(self, name: str) -> None:
        self.phase = JobPhase.WAITING_FOR_WORKERS
        self.failure = ""
        self._name = name
        self._stopping = False
        self._changes = Changes()

    @property
    def over(self) -> bool:
        """Whether the job has finished or failed, and another one may take its place."""
        return self.phase in (JobPhase.FINISHED, JobPhase.FAILED)

    def __str__(self) -> str:
        return f"job {self._name} " + (f"failed: {self.failure}" if self.failure else f"is {self.phase.value}")

    def notify(self) -> None:
        """Wakes everyone who waits for a change of the job's state."""
        self._changes.notify()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition over the job's state.

        Raises:
            FailedPrecondition: the job failed; the message names the cause.
            Unavailable: the dispatcher is stopping.
        """

        def holds() -> bool:
            self.check()
            return condition()

        await self._changes.until(holds)

    def check(self) -> None:
        """Raises FailedPrecondition with the cause if the job has failed, Unavailable if the dispatcher stops."""
        if self.phase is JobPhase.FAILED:
            raise FailedPrecondition(str(self))
        if self._stopping:
            raise Unavailable(f"the dispatcher stops, and {self}")

    def advance(self, phase: JobPhase) -> None:
        """Enters the next phase of a job that goes well."""
        self.phase = phase
        _log.info("%s", self)
        self.notify()

    def fail(self, cause: str) -> None:
        """Ends the job. The first cause counts; a job that has finished, or is being stopped, does not fail."""
        if self.over or self._stopping:
            return
        self.phase = JobPhase.FAILED
        self.failure = cause
        _log.error("%s", self)
        self.notify()

    def stop(self) -> None:
        """Lets everyone go who waits for the job, because the dispatcher stops."""
        self._stopping = True
        self.notify()
