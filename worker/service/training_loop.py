"""The loop that follows the plan, iteration by iteration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import FlushPlan, IterationPlan, PlanMessage
from esd.services.domain.reports import (
    IterationReport,
    PhaseTimes,
    TransferCounts,
    WorkerPhase,
    label_classes,
    withheld,
)
from esd.services.domain.sync import Sync
from esd.services.runtime.tracing import Span, continue_trace
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.iteration_trace import end_trace
from esd.worker.service.link import Link
from esd.worker.service.transfers import IterationTransfers, RowMover
from esd.worker.training.step import StepResult

RowsTrained = Callable[[], object]
Train = Callable[[IterationTransfers, RowsTrained], Coroutine[Any, Any, StepResult]]
Confirm = Callable[[IterationReport], object]
TakeCheckpoint = Callable[[FlushPlan], Coroutine[Any, Any, None]]


class TrainingLoop:
    """Trains the planned iterations in order.

    While one trains, the rows of the next that it does not touch move already, and its own rows leave as soon as they
    are trained, while the workers sum the dense gradients. So the rows and the sum share one round trip. In the first
    iteration of an epoch, and in the first after a checkpoint, they leave when that sum has ended. The sum is the
    barrier before which every worker has loaded its rows and has reported its cut: a push that came earlier would
    overtake a load of the same row, or would be in the checkpoint. Where workers train copies of their own, rows always
    wait for it: another worker may still pull, for this iteration, the version that the push replaces. Only the thread
    that trains touches tensors, apart from copying rows out for their push.

    Args:
        messages: the plan stream, after the membership.
        book: refuses plans that do not fit the cache.
        mover: moves rows, in tasks of its own group.
        train: trains an iteration whose rows are there, and returns its result. It calls the given function, in any
            thread, when the rows are trained.
        link: measures the bandwidth.
        confirm: tells the dispatcher of an iteration; returns at once.
        take_checkpoint: carries out the flush plan of a checkpoint.
        sync: where it awaits storage, an iteration trains only when everything that it pushes is stored.

    Attributes:
        phase: the worker's present activity, for its heartbeats.
    """

    def __init__(
        self,
        messages: AsyncIterator[PlanMessage],
        book: CacheBook,
        mover: RowMover,
        train: Train,
        link: Link,
        confirm: Confirm,
        take_checkpoint: TakeCheckpoint,
        *,
        sync: Sync,
    ) -> None:
        self._messages = messages
        self._book = book
        self._mover = mover
        self._train = train
        self._link = link
        self._tell = confirm
        self._take_checkpoint = take_checkpoint
        self._sync = sync
        self._waiting_since: float | None = None  # while the loop waits for a plan
        self.phase = WorkerPhase.IDLE

    async def run(self) -> FlushPlan:
        """Trains until the plan stream asks for the last flush, and returns its plan."""
        tasks, loop = self._mover.tasks, asyncio.get_running_loop()
        before: IterationTransfers | None = None
        may_leave = asyncio.Event()  # whether the rows of the iteration before may
        may_leave.set()
        barrier = True  # whether the rows wait for the end of the sum
        following, leaving = self._follow(before, may_leave)
        confirming: asyncio.Task[None] | None = None
        while True:
            clock = _Laps()
            self.phase = WorkerPhase.IDLE
            self._waiting_since = clock.times[0]
            current = await following
            self._waiting_since = None
            plan_wait = clock.lap()
            if isinstance(current, FlushPlan):
                self.phase = WorkerPhase.FLUSH
                if confirming is not None:
                    await confirming
                if not current.checkpoint:
                    return current
                await self._take_checkpoint(current)
                barrier = True
                following, leaving = self._follow(before, may_leave)
                continue

            self.phase = WorkerPhase.PUSH
            await leaving
            if self._sync.awaits_storage:
                await current.stored()
            push = clock.lap()
            self.phase = WorkerPhase.PULL
            await current.pulled()
            pull = clock.lap()

            may_leave = asyncio.Event()
            following, leaving = self._follow(current, may_leave)
            self.phase = WorkerPhase.COMPUTE
            let_leave = _wait_for_sum if barrier else partial(_set, loop, may_leave)
            step = await self._train(current, let_leave)
            may_leave.set()
            barrier = self._sync.keeps_copies
            clock.lap()
            times = step.times
            phases = PhaseTimes(plan_wait, push, pull, times.compute, times.all_reduce, times.update)
            confirming = tasks.create_task(self._confirm(current, step, phases, clock, confirming))
            before = current

    async def _confirm(
        self,
        trained: IterationTransfers,
        step: StepResult,
        phases: PhaseTimes,
        clock: _Laps,
        earlier: asyncio.Task[None] | None,
    ) -> None:
        """Reports an iteration when all that it has pushed is durable, while the next one begins.

        Reports go out in order: after the report of the iteration before, `earlier`. The dispatcher's window bounds the
        number of waiting reports. A report that is refused ends the stream of plans.
        """
        if earlier is not None:
            await earlier
        transfers = await trained.finished(step.reduced_floats)
        self._tell(self._report(trained.plan, step, transfers, phases, clock.total()))
        if trained.span is not None:
            end_trace(trained.span, clock.times[:-1], step.times)

    async def _next(self) -> IterationTransfers | FlushPlan:
        """Waits for the next plan, refuses it if it does not fit, and starts its early transfers."""
        message = await anext(self._messages)
        if isinstance(message, FlushPlan):
            self._book.enter_flush(message)
            return message
        if not isinstance(message, IterationPlan):
            raise FailedPrecondition(f"{type(message).__name__} came where a plan was expected")
        self._book.enter(message)
        transfers = IterationTransfers(message, self._mover, self._traced(message))
        await transfers.start(early=True)
        return transfers

    def _traced(self, plan: IterationPlan) -> Span | None:
        """Begins the span of an iteration, as early as the loop has waited for its plan; None if it has no trace."""
        if not plan.trace_parent:
            return None
        return continue_trace(
            plan.trace_parent,
            "iteration",
            began=self._waiting_since,
            epoch=plan.epoch,
            iteration=plan.iteration,
            samples=len(plan.labels),
        )

    def _follow(
        self, before: IterationTransfers | None, may_leave: asyncio.Event
    ) -> tuple[asyncio.Task[IterationTransfers | FlushPlan], asyncio.Task[None]]:
        """Begins the transfers of the next plan: the early ones, and the late ones when `before` lets them leave."""
        following = self._mover.tasks.create_task(self._next())
        return following, self._mover.tasks.create_task(self._leave(following, before, may_leave))

    async def _leave(
        self,
        following: asyncio.Task[IterationTransfers | FlushPlan],
        before: IterationTransfers | None,
        may_leave: asyncio.Event,
    ) -> None:
        """Starts the late transfers of the following plan when the rows of the one before may leave.

        All pushes of the one before are durable then, which takes no time of its own: they left together with the pulls
        that its training has awaited. Otherwise these transfers could overtake a push for which another worker waits in
        the iteration before. Versions of a row also come in order, and RowMover.forget relies on it.
        """
        transfers = await following
        if isinstance(transfers, FlushPlan):
            return
        await may_leave.wait()
        if before is not None:
            await before.stored()
        await transfers.start(early=False)

    def _report(
        self, plan: IterationPlan, step: StepResult, transfers: TransferCounts, phases: PhaseTimes, seconds: float
    ) -> IterationReport:
        bins, labels = step.score_bins, label_classes(plan.labels)
        if labels.shape != bins.shape:  # the plan has no labels, since they stay at their site
            bins, labels = withheld(bins)
        return IterationReport(
            iteration=plan.iteration,
            loss_sum=step.loss_sum,
            score_bins=bins,
            labels=labels,
            transfers=transfers,
            phases=phases,
            seconds=seconds,
            measured_bandwidth=self._link.uplink.take(),
            epoch=plan.epoch,
            groups=plan.groups,
            label_loss_sums=step.label_loss_sums,
            drift=step.drift,
        )


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Sets an event from the thread that trains, which may outlive the loop when its session is closed."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(event.set)


def _wait_for_sum() -> None:
    """Lets no row leave that is trained, before the workers have summed the dense gradients."""


class _Laps:
    """Measures seconds from the start, and from lap to lap.

    Attributes:
        times: of the start, and of the end of each lap.
    """

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def lap(self) -> float:
        self.times.append(time.perf_counter())
        return self.times[-1] - self.times[-2]

    def total(self) -> float:
        return self.times[-1] - self.times[0]
