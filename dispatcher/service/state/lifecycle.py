"""The life of a job, from the wait for its workers to its end, and the one way to wait until its state changes."""

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
    """Phase and failure of one job, and the bell that rings when anything of the job has changed.

    It is a condition variable for a single event loop. State changes between two awaits are atomic anyway, so no lock
    is needed. Whoever changes the state calls `notify`, and everyone who waits looks at their own condition again.
    When the job fails, everyone who waits is let go with the cause.

    Args:
        name: the name of the job, for messages.

    Attributes:
        phase: where the job is in its life.
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
        """Whether workers are waited for, with whom the next epoch begins."""
        return self.phase in (JobPhase.WAITING_FOR_WORKERS, JobPhase.RECOVERING)

    async def wait_until(
        self, condition: Callable[[], bool], *, during: Epoch | None = None, seconds: float | None = None
    ) -> bool:
        """Waits until a condition over the job's state holds.

        Args:
            condition: looks at the state and changes nothing; it is called again after every change.
            during: the epoch to which the wait belongs; when it ends, so does the wait.
            seconds: the longest wait; None waits for as long as it takes.

        Returns:
            Whether the condition holds. It is false only when `seconds` have passed.

        Raises:
            StaleEpoch: the epoch is over; the message says why.
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
        """Lets everyone who waits look at the job's state again.

        Args:
            workers: whether there may be something to tell the workers; else their streams are left alone.
        """
        self._changed.set()
        self._changed = asyncio.Event()
        if workers:
            for listener in self._listeners:
                listener()

    @contextmanager
    def told_by(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls `listener` inside the block whenever there may be something to tell the workers."""
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
