"""The planning loop of one job: samples go in, plans come out, at most `window` iterations ahead of the workers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.decision_log import (
    CheckpointPlanned,
    DecisionLog,
    EpochBegan,
    IterationPlanned,
    Observed,
    Record,
    StreamEnded,
)
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.run.abandoned import end_when_abandoned
from esd.dispatcher.service.run.checkpointing import begin_checkpoint, commit_end
from esd.dispatcher.service.run.idle_servers import watch_idle_servers
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.run.recovery import next_epoch, resume_finished
from esd.dispatcher.service.run.standstill import watch_for_standstill
from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.service.state.epoch import Epoch, PublishedPlan
from esd.native.engine import BatchIds
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, StaleEpoch
from esd.services.domain.state import JobPhase
from esd.services.domain.watched import PlanStage
from esd.services.runtime.tasks import run_in
from esd.services.runtime.threads import named_threads
from esd.services.runtime.tracing import Span, begin_trace, enter
from esd.services.wire.plans import digest_of, encode_plan_message, with_trace

# Iterations that fit into the window at the same time are planned and published together, since every publication wakes
# the event loops of all processes once. No plan waits longer than this for the next ones, estimated from the time of
# the latest decision.
_TOGETHER_SECONDS = 0.005

_log = logging.getLogger(__name__)

T = TypeVar("T")


async def plan_stream(job: Job, decision_log: DecisionLog | None = None) -> None:
    """Runs a job from the wait for its workers to its end. Any error fails the job.

    Args:
        job: the job.
        decision_log: records the inputs of the plans other than the samples; None records nothing. It is closed in the
            end.
    """
    thread = named_threads("esd-planner")  # one: a Planner is not for concurrent use
    watches = [
        asyncio.create_task(end_when_abandoned(job), name="end_when_abandoned"),
        asyncio.create_task(watch_for_standstill(job), name="watch_for_standstill"),
        asyncio.create_task(watch_idle_servers(job), name="watch_idle_servers"),
    ]
    try:
        await _plan_epochs(job, decision_log, thread)
    except EsdError as error:
        job.fail(str(error))
    except asyncio.CancelledError:  # the dispatcher stops
        if job.checkpoints is not None:
            await job.checkpoints.abandon()
        raise
    except Exception:  # noqa: BLE001 - a defect, which must end the job, or its callers would wait for ever
        _log.exception("defect while planning")
        job.lifecycle.fail("internal error while planning; the dispatcher's log has the details")
    finally:
        for watch in watches:
            watch.cancel()
        thread.shutdown(wait=False)
        job.shadows.close()
        if decision_log is not None:
            decision_log.close()
        try:
            await job.submission.close()
        finally:
            if job.checkpoints is not None:
                await job.checkpoints.close()


async def _plan_epochs(job: Job, decision_log: DecisionLog | None, thread: ThreadPoolExecutor) -> None:
    """Plans one epoch after the other, until an epoch reaches the end of the stream."""
    if job.checkpoints is not None and job.checkpoints.latest.finished:
        await resume_finished(job, job.checkpoints)
        return
    while True:
        try:
            epoch, planner = await next_epoch(job, thread)
            await _EpochPlanning(job, epoch, planner, decision_log, thread).run()
        except StaleEpoch as error:  # the epoch has ended, or the error of a parameter server ends it now
            job.end_epoch(str(error))
            continue
        return


class _EpochPlanning:
    """Plans one epoch, up to the end of the stream. An early end of the epoch ends every wait with StaleEpoch."""

    def __init__(
        self, job: Job, epoch: Epoch, planner: Planner, decision_log: DecisionLog | None, thread: ThreadPoolExecutor
    ) -> None:
        self._job = job
        self._epoch = epoch
        self._planner = planner
        self._log = decision_log
        self._thread = thread
        self._batches: deque[SampleBatch] = deque()  # the next batch to plan, and its lookahead
        self._starved = False  # whether the workers had run out of plans when these samples arrived
        self._decision_seconds = _TOGETHER_SECONDS  # time of the latest decision, per iteration
        self._degrees: NDArray[np.float64] | None = None  # degrees of infrequency in the metrics

    async def run(self) -> None:
        """Plans and publishes the epoch. Raises StaleEpoch when it ends before the stream."""
        job = self._job
        self._record(_epoch_record(self._epoch, self._planner))
        while True:
            await self._wait_until(lambda: self._epoch.unconfirmed < job.spec.window)
            if not await self._fill():
                break
            await self._checkpoint_if_due()
            await self._plan(self._turns())
        await self._wait_until(lambda: not self._epoch.unconfirmed)
        await self._flush()

    async def _fill(self) -> bool:
        """Waits for the next batch and its lookahead. Returns False at the end of the stream."""
        self._starved = False
        while not self._filled():
            await self._wait_for_samples()
            self._starved = self._idle
        return bool(self._batches)

    def _filled(self) -> bool:
        """Moves ready batches from the queue; returns whether the next plan has its batch and its lookahead."""
        samples = self._job.samples
        while len(self._batches) <= self._planner.lookahead and samples.ready:
            self._batches.append(samples.take())
            self._job.lifecycle.notify(workers=False)  # a Submit call may wait for room
        return len(self._batches) > self._planner.lookahead or samples.exhausted

    async def _wait_for_samples(self) -> None:
        """Waits for the next batch, and takes the checkpoints that fall due by time while the stream pauses.

        So all trained rows reach the parameter servers within `checkpoint_seconds` (in Herald §7 workers push all rows
        when no next batch is visible).
        """
        job, samples = self._job, self._job.samples
        while True:
            left = math.inf if job.checkpoints is None else job.checkpoints.seconds_left(self._epoch.plans.planned)
            if await job.lifecycle.wait_until(
                lambda: samples.ready or samples.exhausted,
                seconds=max(left, 0.0) if math.isfinite(left) else None,
                during=self._epoch,
            ):
                return
            await self._checkpoint_if_due()

    async def _checkpoint_if_due(self) -> None:
        job, checkpoints = self._job, self._job.checkpoints
        if checkpoints is None or not checkpoints.due(self._epoch.plans.planned):
            return
        await self._wait_until(lambda: checkpoints.idle)
        flushes, planner = await self._in_thread(self._planner.checkpoint)
        self._record(CheckpointPlanned(self._epoch.plans.planned))
        samples = job.samples.position - sum(map(len, self._batches))
        begin_checkpoint(job, checkpoints, flushes, planner, samples)

    def _turns(self) -> list[_Turn]:
        """Returns the inputs of the next iteration, and of the following ones that can be planned with it."""
        job, checkpoints, first = self._job, self._job.checkpoints, self._epoch.plans.planned
        turns = [self._turn(first)]
        room = min(job.spec.window - self._epoch.unconfirmed, int(_TOGETHER_SECONDS / self._decision_seconds))
        for iteration in range(first + 1, first + room):
            if (checkpoints is not None and checkpoints.due(iteration)) or not (self._filled() and self._batches):
                break
            turns.append(self._turn(iteration))
        return turns

    def _turn(self, iteration: int) -> _Turn:
        """Takes a batch, and the feedback of the iteration that leaves the window when this iteration is planned.

        All workers have confirmed the iteration that leaves the window, however slow they are. So plans depend on
        the measurements, which the decision log records, and never on the order in which reports arrive.
        """
        batch = self._batches.popleft()
        if self._job.checkpoints is not None:
            self._job.checkpoints.planned(batch)
        feedback = self._job.feedback.take_through(iteration - self._job.spec.window)
        return _Turn(batch, self._planner.found(batch), tuple(self._batches), feedback)

    async def _plan(self, turns: Sequence[_Turn]) -> None:
        job = self._job
        decided = await self._in_thread(_decide, self._planner, turns, self._log)
        rows = self._planner.rows
        for turn, (decision, published) in zip(turns, decided, strict=True):
            late = self._idle and not self._starved
            job.publish(decision, published)
            job_metrics.planned(job.spec, decision, rows, late=late)
            self._decision_seconds = decision.decision_seconds
            trained = decision.trained_samples
            ids = turn.ids if trained is turn.batch else self._planner.found(trained)
            job.shadows.follow(decision.iteration, trained, ids)
        self._degrees = job_metrics.ranked(self._planner, self._degrees)

    async def _flush(self) -> None:
        """Publishes the final flush plans, waits for the workers to carry them out, and finishes the job."""
        job, plans, checkpoints = self._job, self._epoch.plans, self._job.checkpoints
        self._record(StreamEnded(plans.planned))
        plans.final_flush = [encode_plan_message(plan) for plan in await self._in_thread(self._planner.flush)]
        job.show_plans(PlanStage.END, plans.planned, plans.final_flush)
        job.lifecycle.advance(JobPhase.FLUSHING)
        await job.shadows.finish()
        await self._wait_until(lambda: all(worker.flushed for worker in job.training_workers))
        if checkpoints is not None:
            await self._wait_until(lambda: checkpoints.idle)
            if checkpoints.latest.iteration == plans.planned:  # the stream ended right after a checkpoint
                await checkpoints.finish_latest(job.evaluations.latest, self._epoch.number)
            else:
                _, planner = await self._in_thread(self._planner.checkpoint)
                self._record(CheckpointPlanned(plans.planned))
                await commit_end(job, checkpoints, self._epoch, planner)
        job.lifecycle.advance(JobPhase.FINISHED)

    @property
    def _idle(self) -> bool:
        """Whether the workers have trained every planned iteration of the epoch, and wait for the next."""
        return self._epoch.first < self._epoch.plans.planned and not self._epoch.unconfirmed

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        await self._job.lifecycle.wait_until(condition, during=self._epoch)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        result = await run_in(self._thread, function, *args)
        self._job.lifecycle.raise_if_failed()
        self._epoch.raise_if_over()
        return result

    def _record(self, record: Record) -> None:
        if self._log is not None:
            self._log.add(record)


def _epoch_record(epoch: Epoch, planner: Planner) -> EpochBegan:
    limits = planner.job.workload_limits
    return EpochBegan(
        epoch=epoch.number,
        first=epoch.first,
        workloads=list(planner.job.workloads),
        workload_limits=None if limits is None else list(limits),
        bandwidths=list(planner.bandwidths),
        cache_rows=list(planner.cache_rows),
        worker_limits=[list(limits) for limits in planner.worker_limits],
        members=list(planner.members),
        warm=planner.warm,
        dense_sum=str(planner.job.dense_sum),
        rests=planner.rests,
    )


@dataclass(frozen=True, slots=True)
class _Turn:
    """The inputs of the plan of one iteration.

    Attributes:
        batch: its samples.
        ids: the ids of these samples, shared with the shadows; not used by a job with admission.
        later: the batches of the following iterations, as far as the mechanism looks ahead.
        feedback: measurements of earlier iterations, which the planner observes first.
    """

    batch: SampleBatch
    ids: BatchIds
    later: Sequence[SampleBatch]
    feedback: Sequence[Feedback]


def _decide(
    planner: Planner, turns: Sequence[_Turn], log: DecisionLog | None
) -> list[tuple[Decision, list[PublishedPlan]]]:
    """Plans iterations in order and encodes their plans, by slot; runs in the planner's thread."""
    decided = []
    for turn in turns:
        for feedback in turn.feedback:
            if log is not None:
                log.add(Observed.of(feedback))
            planner.observe(feedback)
        span = begin_trace("plan")
        enter(span)
        decision = planner.plan(turn.batch, turn.later, ids=turn.ids)
        if log is not None:  # of the plans without their trace, which another run of the same stream has not
            log.add(IterationPlanned(decision.iteration, digest_of(decision.messages), decision.efforts))
        decided.append((decision, _published(decision, span)))
        enter(None)
    return decided


def _published(decision: Decision, span: Span | None) -> list[PublishedPlan]:
    """Returns the plans of a decision, by slot, and ends the span of the decision."""
    messages: Sequence[bytes] = decision.messages
    trace_id = ""
    if span is not None:
        messages = [with_trace(message, span.context) for message in messages]
        trace_id = span.trace_id
        span.end(epoch=decision.epoch, iteration=decision.iteration, samples=len(decision.batch))
    samples = decision.workloads.tolist()
    return [PublishedPlan(message, m, trace_id) for message, m in zip(messages, samples, strict=True)]
