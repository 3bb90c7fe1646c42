"""The job that a dispatcher runs: one at a time, a new one may follow one that is over."""

from __future__ import annotations

import asyncio
import logging

from dispatcher.core.decision_log import DecisionLog
from dispatcher.core.planner import check_job
from dispatcher.service.checkpoint.checkpoints import Checkpoints
from dispatcher.service.checkpoint.resume import open_checkpoints
from dispatcher.service.run.job import Job
from dispatcher.service.run.planning import plan_stream
from dispatcher.service.settings import DispatcherSettings
from dispatcher.service.state.manifest import describe_job
from services.domain.errors import FailedPrecondition, NotFound, Unavailable
from services.domain.jobs import JobSpec

# Opening a job asks the parameter servers what they hold of it. One that does not answer at all (a link that is cut)
# must not keep callers longer than they wait, by default 30 s: they get an answer, and try again.
_OPENING_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Jobs:
    """Holds the latest job and its planning task."""

    def __init__(self, settings: DispatcherSettings) -> None:
        self._settings = settings
        self._job: Job | None = None
        self._planning: asyncio.Task[None] | None = None
        self._creation = asyncio.Lock()
        self._closed = False

    @property
    def latest(self) -> Job | None:
        """The job that runs, or the last one that did."""
        return self._job

    def current(self) -> Job:
        """The latest job. Raises NotFound when there was none."""
        if self._job is None:
            raise NotFound("no job yet; open one with CreateJob")
        return self._job

    async def create(self, spec: JobSpec) -> bool:
        """Opens a job, or takes up one that the parameter servers have a checkpoint of.

        Returns False if exactly this one is open already.

        Raises:
            InvalidArgument: the mechanism or the cache policy is unknown.
            FailedPrecondition: another job is running, the table holds another job's rows, or this machine lacks what
                the job asks for.
            Unavailable: a parameter server is away, or has not answered in time.
        """
        try:
            async with asyncio.timeout(_OPENING_SECONDS), self._creation:
                return await self._create(spec)
        except TimeoutError:
            raise Unavailable(
                f"job {spec.name} could not be opened within {_OPENING_SECONDS:g} s: a parameter server does not answer"
            ) from None

    async def _create(self, spec: JobSpec) -> bool:
        if self._closed:
            raise Unavailable("the dispatcher is stopping")
        if self._job is not None and not self._job.life.over:
            if self._job.spec == spec:
                return False
            raise FailedPrecondition(f"{self._job.life}, and one dispatcher runs one job at a time")
        check_job(spec)
        opening = await open_checkpoints(spec, self._settings)
        checkpoints = opening.checkpoints if opening is not None else None
        self._job = Job(spec, self._settings, checkpoints, _decision_log(spec, self._settings, checkpoints))
        if opening is not None:
            self._job.stream.take_up(opening.logged, closed=opening.closed)
        self._planning = asyncio.create_task(plan_stream(self._job), name="plan_stream")
        _log.info("%s, created", self._job.life)
        return True

    async def close(self) -> None:
        """Lets go of everyone who waits for the job."""
        self._closed = True
        if self._job is not None:
            self._job.life.stop()
        if self._planning is not None:
            await self._planning


def _decision_log(spec: JobSpec, settings: DispatcherSettings, checkpoints: Checkpoints | None) -> DecisionLog | None:
    """The log that the settings ask for. Raises FailedPrecondition when it cannot be written."""
    if settings.decision_log is None:
        return None
    resume = checkpoints is not None and checkpoints.latest.iteration > 0
    return DecisionLog(settings.decision_log, describe_job(spec), resume=resume)
