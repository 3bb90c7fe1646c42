"""The job that a dispatcher runs: one at a time; the next may be created when it is over."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from esd.dispatcher.core.decision_log import DecisionLog
from esd.dispatcher.core.planner import check_job
from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.checkpoint.resume import find_starting_point
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.run.planning import plan_stream
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.service.state.manifest import describe_job
from esd.services.domain.errors import FailedPrecondition, NotFound, Unavailable
from esd.services.domain.jobs import JobSpec

# Opening a job asks the parameter servers for its checkpoint. A server that does not answer (a cut link) must not hold
# the call until the caller's own deadline, 30 s by default: the caller gets a retryable error before that.
_OPENING_SECONDS = 10.0

_LONGEST_REASON = 500  # characters; the reason is sent to every worker and client

_log = logging.getLogger(__name__)


class CurrentJob:
    """Holds the latest job and the task that runs it.

    Args:
        settings: the settings of the dispatcher.

    Attributes:
        latest: the running job, or the last job that ran; None before the first.
    """

    def __init__(self, settings: DispatcherSettings) -> None:
        self.latest: Job | None = None
        self._settings = settings
        self._planning: asyncio.Task[None] | None = None
        self._creation = asyncio.Lock()
        self._closed = False
        self._opened = asyncio.Condition()

    def get(self) -> Job:
        """Returns the latest job. Raises NotFound when there was none."""
        if self.latest is None:
            raise NotFound("no job yet; open one with CreateJob")
        return self.latest

    async def taking_workers(self, within: float) -> Job:
        """Waits for a job that takes workers.

        Args:
            within: the longest wait, in seconds.

        Returns:
            The running job; after `within` seconds the latest job, even if it is over.

        Raises:
            NotFound: no job has been created.
            Unavailable: the dispatcher is stopping.
        """
        try:
            async with asyncio.timeout(within), self._opened:
                await self._opened.wait_for(lambda: self._closed or self._running is not None)
        except TimeoutError:
            pass
        if self._closed:
            raise Unavailable("the dispatcher is stopping")
        return self.get()

    @property
    def _running(self) -> Job | None:
        return None if self.latest is None or self.latest.lifecycle.over else self.latest

    def named(self, name: str) -> Job:
        """Returns the latest job. Raises NotFound when it has another name, or there was none."""
        job = self.get()
        if name != job.spec.name:
            raise NotFound(f"no job {name!r}; {job.lifecycle}")
        return job

    def cancel(self, name: str, reason: str) -> bool:
        """Ends the job, and returns false if it was over before.

        Args:
            name: the name of the job.
            reason: the cause that its workers and clients receive.

        Raises:
            NotFound: the latest job has another name, or no job has been created.
        """
        job = self.named(name)
        if job.lifecycle.over:
            return False
        job.fail(f"it was cancelled: {reason[:_LONGEST_REASON] or 'no reason was given'}")
        return True

    async def create(self, spec: JobSpec) -> bool:
        """Opens a job, or resumes it from its checkpoint on the parameter servers.

        Returns:
            False if a job with the same specification is open already.

        Raises:
            InvalidArgument: the mechanism or the cache policy is unknown.
            FailedPrecondition: another job is running, the table holds another job's rows, or the job asks for a GPU
                that this machine does not have.
            Unavailable: a parameter server is away, or has not answered in time.
        """
        try:
            async with asyncio.timeout(_OPENING_SECONDS), self._creation:
                return await self._create(spec)
        except TimeoutError:
            raise Unavailable(
                f"job {spec.name} could not be opened within {_OPENING_SECONDS:g} s: a parameter server does not answer"
            ) from None

    async def close(self) -> None:
        """Ends every wait for the job, and waits until the job has stopped.

        A call to a parameter server that hangs is cancelled after `grace_seconds`. Whether that call took effect does
        not matter: the next dispatcher reads the servers' state before it starts.
        """
        self._closed = True
        async with self._opened:
            self._opened.notify_all()
        if self.latest is not None:
            self.latest.lifecycle.stop()
        if self._planning is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.grace_seconds):
                    await self._planning

    async def _create(self, spec: JobSpec) -> bool:
        if self._closed:
            raise Unavailable("the dispatcher is stopping")
        if (running := self._running) is not None:
            if running.asked == spec:
                return False
            raise FailedPrecondition(f"{running.lifecycle}, and one dispatcher runs one job at a time")
        await asyncio.to_thread(check_job, spec)  # in a thread: it makes a planner, and may probe the GPU
        start = await find_starting_point(spec, self._settings)
        checkpoints = start.checkpoints if start is not None else None
        try:
            decision_log = _open_decision_log(spec, self._settings, checkpoints)
        except BaseException:
            if checkpoints is not None:
                await checkpoints.close()
            raise
        job = Job(spec, self._settings, checkpoints)
        if start is not None:
            job.submission.resume(start.logged, closed=start.closed)
        self.latest = job
        self._planning = asyncio.create_task(plan_stream(job, decision_log), name="plan_stream")
        _log.info("%s, created", job.lifecycle)
        async with self._opened:
            self._opened.notify_all()
        return True


def _open_decision_log(
    spec: JobSpec, settings: DispatcherSettings, checkpoints: Checkpoints | None
) -> DecisionLog | None:
    """Opens the log that the settings ask for. Raises FailedPrecondition when it cannot be written."""
    if settings.decision_log is None:
        return None
    resume = checkpoints is not None and checkpoints.latest.iteration > 0
    return DecisionLog(settings.decision_log, describe_job(spec), resume=resume)
