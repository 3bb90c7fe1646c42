"""The loop that follows the plan, iteration by iteration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import FlushPlan, IterationPlan, PlanMessage
from esd.services.domain.reports import IterationReport, PhaseTimes, TransferCounts, WorkerPhase, label_classes
from esd.services.domain.sync import Sync
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.link import Link
from esd.worker.service.transfers import IterationTransfers, RowMover
from esd.worker.training.step import StepResult

Train = Callable[[IterationTransfers], Coroutine[Any, Any, StepResult]]
Confirm = Callable[[IterationReport], object]
TakeCheckpoint = Callable[[FlushPlan], Coroutine[Any, Any, None]]


class TrainingLoop:
    """Trains the planned iterations in order.

    While one trains, the rows of the next that it does not touch move already. Only the thread that trains touches
    tensors, apart from copying rows out for their push.

    Args:
        messages: the plan stream, after the membership.
        book: refuses plans that do not fit the cache.
        mover: moves rows, in tasks of its own group.
        train: trains an iteration whose rows are there, and returns its result.
        link: measures the bandwidth.
        confirm: tells the dispatcher of an iteration; returns at once.
        take_checkpoint: carries out the flush plan of a checkpoint.
        sync: where it awaits storage, an iteration trains only when everything that it pushes is stored; where workers
            keep copies, it pushes only when earlier pushes are stored, so that versions of a row that others make come
            in order.

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
        self.phase = WorkerPhase.IDLE

    async def run(self) -> FlushPlan:
        """Trains until the plan stream asks for the last flush, and returns its plan."""
        tasks = self._mover.tasks
        following = tasks.create_task(self._next())
        before: IterationTransfers | None = None
        confirming: asyncio.Task[None] | None = None
        while True:
            clock = _Laps()
            self.phase = WorkerPhase.IDLE
            current = await following
            plan_wait = clock.lap()
            if isinstance(current, FlushPlan):
                self.phase = WorkerPhase.FLUSH
                if confirming is not None:
                    await confirming
                if not current.checkpoint:
                    return current
                await self._take_checkpoint(current)
                following = tasks.create_task(self._next())
                continue

            self.phase = WorkerPhase.PUSH
            if before is not None and self._sync.keeps_copies:
                await before.stored()
            await current.start(early=False)
            if self._sync.awaits_storage:
                await current.stored()
            push = clock.lap()
            self.phase = WorkerPhase.PULL
            await current.pulled()
            pull = clock.lap()
            self.phase = WorkerPhase.PUSH
            if before is not None:  # see RowMover.forget
                await before.stored()
            push += clock.lap()

            following = tasks.create_task(self._next())
            self.phase = WorkerPhase.COMPUTE
            step = await self._train(current)
            clock.lap()
            phases = PhaseTimes(plan_wait, push, pull, step.compute, step.all_reduce, step.update)
            confirming = tasks.create_task(self._confirm(current, step, phases, clock.total(), confirming))
            before = current

    async def _confirm(
        self,
        trained: IterationTransfers,
        step: StepResult,
        phases: PhaseTimes,
        seconds: float,
        earlier: asyncio.Task[None] | None,
    ) -> None:
        """Reports an iteration when all that it has pushed is durable, while the next one begins.

        Reports go out in order: after the report of the iteration before, `earlier`. The dispatcher's window bounds the
        number of waiting reports. A report that is refused ends the stream of plans.
        """
        if earlier is not None:
            await earlier
        transfers = await trained.finished(step.reduced_floats)
        self._tell(self._report(trained.plan, step, transfers, phases, seconds))

    async def _next(self) -> IterationTransfers | FlushPlan:
        """Waits for the next plan, refuses it if it does not fit, and starts its early transfers."""
        message = await anext(self._messages)
        if isinstance(message, FlushPlan):
            self._book.enter_flush(message)
            return message
        if not isinstance(message, IterationPlan):
            raise FailedPrecondition(f"{type(message).__name__} came where a plan was expected")
        self._book.enter(message)
        transfers = IterationTransfers(message, self._mover)
        await transfers.start(early=True)
        return transfers

    def _report(
        self, plan: IterationPlan, step: StepResult, transfers: TransferCounts, phases: PhaseTimes, seconds: float
    ) -> IterationReport:
        return IterationReport(
            iteration=plan.iteration,
            loss_sum=step.loss_sum,
            score_bins=step.score_bins,
            labels=label_classes(plan.labels),
            transfers=transfers,
            phases=phases,
            seconds=seconds,
            measured_bandwidth=self._link.uplink.take(),
            epoch=plan.epoch,
            groups=plan.groups,
            label_loss_sums=step.label_loss_sums,
        )


class _Laps:
    """Measures seconds since the start, and since the last lap."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()

    def lap(self) -> float:
        last, self._last = self._last, time.perf_counter()
        return self._last - last

    def total(self) -> float:
        return self._last - self._start
