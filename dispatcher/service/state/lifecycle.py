"""The phases of a job, from the wait for its workers to its end, and the wait for changes of its state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from esd.dispatcher.service.state.epoch import Epoch
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.domain.state import JobPhase

_log = logging.getLogger(__name__)


class Lifecycle:
    """Phase and failure of one job, and a condition variable for its state in a single event loop.

    State changes between two awaits are atomic, so no lock is needed. Code that changes the state calls `notify`, and
    every waiting task checks its own condition again. When the job fails, every wait raises the cause.

    Args:
        name: the name of the job, for messages.

    Attributes:
        phase: the present phase of the job.
        failure: why the job failed; empty unless the phase is FAILED.
    """

    def __init__(self, name: str) -> None:
        self.phase = JobPhase.WAITING_FOR_WORKERS
        self.failure = ""
        self._name = name
        self._stopping = False
        self._changed = asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()

    def __str__(self) -> str:
        return f"job {self._name} " + (f"failed: {self.failure}" if self.failure else f"is {self.phase.value}")

    @property
    def over(self) -> bool:
        """Whether the job has finished or failed, and another one may take its place."""
        return self.phase in (JobPhase.FINISHED, JobPhase.FAILED)

    @property
    def between_epochs(self) -> bool:
        """Whether the job waits for the workers of its next epoch."""
        return self.phase in (JobPhase.WAITING_FOR_WORKERS, JobPhase.RECOVERING)

    async def wait_until(
        self, condition: Callable[[], bool], *, during: Epoch | None = None, seconds: float | None = None
    ) -> bool:
        """Waits until a condition over the job's state holds.

        Args:
            condition: reads the state and changes nothing; it is called again after every change.
            during: the epoch to which the wait belongs; when it ends, so does the wait.
            seconds: the longest wait; None waits without a limit.

        Returns:
            Whether the condition holds. It is false only when `seconds` have passed.

        Raises:
            StaleEpoch: the epoch is over; the message gives the cause.
            FailedPrecondition: the job failed; the message names the cause.
            Unavailable: the dispatcher is stopping.
        """
        if self._holds(condition, during):
            return True
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._changed.wait()
                    if self._holds(condition, during):
                        return True
        except TimeoutError:
            return False

    def _holds(self, condition: Callable[[], bool], during: Epoch | None) -> bool:
        self.raise_if_failed()
        if during is not None:
            during.raise_if_over()
        return condition()

    def notify(self, *, workers: bool = True) -> None:
        """Wakes every waiting task, so that it checks its condition again.

        Args:
            workers: whether the change may bring messages for the workers; if not, their streams are not woken.
        """
        # A new event per change: tasks that wait on the old one all wake, and none has to clear it for the others.
        self._changed.set()
        self._changed = asyncio.Event()
        if workers:
            for listener in self._listeners:
                listener()

    @contextmanager
    def told_by(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls `listener` inside the block after every change that may bring messages for the workers."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def raise_if_failed(self) -> None:
        """Raises FailedPrecondition with the cause if the job has failed, and Unavailable if the dispatcher stops."""
        if self.phase is JobPhase.FAILED:
            raise FailedPrecondition(str(self))
        if self._stopping:
            raise Unavailable(f"the dispatcher stops, and {self}")

    def advance(self, phase: JobPhase) -> None:
        """Enters the next phase of a job that has not failed."""
        self.phase = phase
        _log.info("%s", self)
        self.notify()

    def fail(self, cause: str) -> None:
        """Ends the job with a cause. Only the first cause counts; a finished job and a stopping one do not fail."""
        if self.over or self._stopping:
            return
        self.phase = JobPhase.FAILED
        self.failure = cause
        _log.error("%s", self)
        self.notify()

    def stop(self) -> None:
        """Ends every wait for the job with Unavailable, because the dispatcher stops."""
        self._stopping = True
        self.notify()
