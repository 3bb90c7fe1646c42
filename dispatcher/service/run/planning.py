"""The planning loop of one job: stream in, plans out, never more than `window` iterations ahead of the workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dispatcher.core.decision import Decision
from dispatcher.core.decision_log import (
    CheckpointPlanned,
    DecisionLog,
    EpochBegan,
    IterationPlanned,
    Observed,
    StreamEnded,
)
from dispatcher.core.planner import Planner
from dispatcher.service.checkpoint.checkpoints import Checkpoints, Pending
from dispatcher.service.run.job import Job
from dispatcher.service.run.recovery import next_epoch, take_up_end
from dispatcher.service.state import metrics as telemetry
from dispatcher.service.state.epoch import Epoch
from dispatcher.service.state.plan_log import PublishedPlan
from services.domain.batches import SampleBatch
from services.domain.errors import EsdError, StaleEpoch
from services.domain.state import JobPhase
from services.wire.plans import digest_of, encode_plan_message

_log = logging.getLogger(__name__)

T = TypeVar("T")


async def plan_stream(job: Job) -> None:
    """Runs a job from the moment all workers are there to its end. Whatever goes wrong fails the job."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="esd-planner")  # one: a Planner is not for concurrent use
    try:
        await _plan_epochs(job, thread)
    except EsdError as error:
        job.life.fail(f"{error}{_last_checkpoint(job)}")
    except Exception:  # noqa: BLE001 - a defect: nobody may wait for this job for ever
        _log.exception("defect while planning")
        job.life.fail("internal error while planning; the dispatcher's log has the details")
    finally:
        thread.shutdown(wait=False)
        job.shadows.close()
        await job.stream.close()
        if job.decision_log is not None:
            job.decision_log.close()
        if job.checkpoints is not None:
            await job.checkpoints.close()


async def _plan_epochs(job: Job, thread: ThreadPoolExecutor) -> None:
    if job.checkpoints is None:
        await job.life.until(lambda: job.life.phase is JobPhase.RUNNING)
        planner = await asyncio.get_running_loop().run_in_executor(thread, _first_planner, job)
        await _PlanningEpoch(job, job.current_epoch(), planner, thread).run()
        return
    if job.checkpoints.latest.finished:
        await take_up_end(job, job.checkpoints)
        return
    while True:
        try:
            epoch, planner = await next_epoch(job, job.checkpoints, thread)
            await _PlanningEpoch(job, epoch, planner, thread).run()
        except StaleEpoch:
            continue
        return


class _PlanningEpoch:
    """Plans one epoch, to the end of the stream or of the epoch."""

    def __init__(self, job: Job, epoch: Epoch, planner: Planner, thread: ThreadPoolExecutor) -> None:
        self._job = job
        self._epoch = epoch
        self._planner = planner
        self._thread = thread
        self._batches: deque[SampleBatch] = deque()  # the next one to plan, and its lookahead

    async def run(self) -> None:
        """Plans and publishes. Raises StaleEpoch when the epoch ends before the stream."""
        job, plans, log = self._job, self._epoch.plans, self._job.decision_log
        if log is not None:
            log.add(_epoch_record(self._epoch, self._planner))
        while True:
            await self._until(lambda: plans.iterations - job.confirmed < job.spec.window)
            if not await self._fill():
                break
            await self._checkpoint_if_due()
            if plans.iterations >= self._epoch.first + job.spec.window:
                # All have confirmed these: no decision hangs on who is how fast.
                feedback = job.observations.take(plans.iterations - job.spec.window)
                if log is not None:
                    log.add(Observed(feedback.seconds.tolist(), feedback.bandwidths.tolist()))
                self._planner.observe(feedback)
            batch = self._batches.popleft()
            job.shadows.follow(plans.iterations, batch)
            decision, published, seconds = await self._in_thread(
                _decide, self._planner, batch, list(self._batches), log
            )
            job.figures.planned(decision)
            job.stragglers.planned(plans.iterations, asyncio.get_running_loop().time())
            plans.publish(published)
            telemetry.planned(job.spec, decision, seconds, plans.iterations - job.confirmed, self._planner.rows)
            job.life.notify()

        await self._until(lambda: job.confirmed == plans.iterations)
        if log is not None:
            log.add(StreamEnded(plans.iterations))
        plans.flush = [encode_plan_message(plan) for plan in await self._in_thread(self._planner.flush)]
        job.life.advance(JobPhase.FLUSHING)
        await self._until(lambda: all(member.flushed for member in job.crew))
        if job.checkpoints is not None:
            await self._commit_end(job.checkpoints)
        job.life.advance(JobPhase.FINISHED)

    async def _commit_end(self, checkpoints: Checkpoints) -> None:
        """Makes the end durable before anyone hears of it: from then on the workers may leave."""
        job, epoch = self._job, self._epoch
        await self._until(lambda: checkpoints.idle)
        _, engine = await self._in_thread(self._planner.checkpoint)
        if job.decision_log is not None:
            job.decision_log.add(CheckpointPlanned(epoch.plans.iterations))
        pending = Pending(
            epoch.plans.iterations,
            job.intake.taken,
            job.figures.save_planned(),
            engine,
            {member.slot: member.saved for member in job.crew},
            "".join(member.dense_checksum for member in job.crew),  # one has stored them
            job.figures.progress.save(),
            finished=True,
        )
        await checkpoints.commit_end(pending, epoch)

    async def _fill(self) -> bool:
        """Takes batches from the stream; False when there are none left."""
        intake = self._job.intake
        while len(self._batches) <= self._planner.lookahead:
            await self._until(lambda: intake.ready or intake.exhausted)
            if intake.exhausted:
                break
            self._batches.append(self._job.stream.next_batch())
        return bool(self._batches)

    async def _checkpoint_if_due(self) -> None:
        job, plans, checkpoints = self._job, self._epoch.plans, self._job.checkpoints
        if checkpoints is None or not checkpoints.due(plans.iterations):
            return
        await self._until(lambda: checkpoints.idle)
        flushes, engine = await self._in_thread(self._planner.checkpoint)
        if job.decision_log is not None:
            job.decision_log.add(CheckpointPlanned(plans.iterations))
        samples = job.intake.position - sum(map(len, self._batches))
        checkpoints.begin(Pending(plans.iterations, samples, job.figures.save_planned(), engine))
        plans.cuts[plans.iterations] = [encode_plan_message(plan) for plan in flushes]
        job.life.notify()

    async def _until(self, condition: Callable[[], bool]) -> None:
        await self._job.life.until(lambda: self._epoch.check() and condition())

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        result = await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        self._job.life.check()
        self._epoch.check()
        return result


def _first_planner(job: Job) -> Planner:
    registrations = [member.registration for member in job.roster.members]
    return Planner(job.spec, [r.bandwidth for r in registrations], [r.cache_rows for r in registrations])


def _last_checkpoint(job: Job) -> str:
    return f"; the last checkpoint is {job.checkpoints.latest.iteration}" if job.checkpoints is not None else ""


def _epoch_record(epoch: Epoch, planner: Planner) -> EpochBegan:
    limits = planner.job.workload_limits
    return EpochBegan(
        epoch=epoch.number,
        first=epoch.first,
        workloads=list(planner.job.workloads),
        workload_limits=None if limits is None else list(limits),
        bandwidths=list(planner.bandwidths),
        cache_rows=list(planner.cache_rows),
    )


def _decide(
    planner: Planner, batch: SampleBatch, lookahead_batches: Sequence[SampleBatch], log: DecisionLog | None
) -> tuple[Decision, list[PublishedPlan], float]:
    """Plans one iteration and makes it ready to be sent; runs in the planner's thread."""
    decision = planner.plan(batch, lookahead_batches)
    started = time.perf_counter()
    published = [PublishedPlan(encode_plan_message(plan), len(plan.labels)) for plan in decision.plans]
    seconds = time.perf_counter() - started
    if log is not None:
        log.add(IterationPlanned(decision.iteration, digest_of(plan.message for plan in published)))
    return decision, published, seconds
