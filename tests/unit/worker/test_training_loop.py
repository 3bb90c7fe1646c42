"""When an iteration may train: the loop itself, over transfers whose end the test decides.

A parameter server cannot be asked to keep an acknowledgement back, so the mover is one that does.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from esd.services.domain.plans import FlushPlan
from esd.services.domain.sync import Bounded, Full, OnDemand, WriteThrough
from esd.services.runtime.tasks import run_in
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.inbox import Inbox
from esd.worker.service.training_loop import TrainingLoop
from esd.worker.training.step import StepResult
from esd.worker.training.step_times import StepTimes

ALONE = 1  # the contributors of worker 0


class HeldMover:
    """Moves nothing: its pushes are durable when the test says so, its pulls are there at once."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        cache = SimpleNamespace(
            staging=lambda rows: np.zeros((rows, 2), np.float32), write=lambda *_: None, empty_gathered=lambda _: None
        )
        servers = SimpleNamespace(exchange=self.exchange)
        self.tables = [SimpleNamespace(cache=cache, parcel=self.parcel, servers=servers, epoch=1)]
        self.peers = SimpleNamespace(inbox=Inbox(1, 0, 0, (), within=60))
        self.stored: list[asyncio.Future[None]] = []
        self.sent = asyncio.Event()
        self.sent_twice = asyncio.Event()

    async def parcel(self, rows, gradients, pulls):
        return SimpleNamespace(rows=rows, gradients=gradients, pulls=pulls)

    def exchange(self, parcel, staging, *, epoch, urgent, trace_parent):
        pulled, stored = (asyncio.get_running_loop().create_future() for _ in range(2))
        pulled.set_result(None)
        if len(parcel.rows):
            self.stored.append(stored)
            (self.sent_twice if self.sent.is_set() else self.sent).set()
        else:
            stored.set_result(None)
        return [SimpleNamespace(pulled=pulled, stored=stored, pull_bytes=0, push_bytes=0, initial_rows=0)]

    async def forget(self, plan):
        pass

    def reduced_bytes(self, _plan):
        return 0

    def end_if_failed(self, frames):
        pass


class Trainer:
    """Trains nothing, and tells which iterations it was asked for.

    Attributes:
        trained: the iterations that it has begun.
        summing: the iterations whose rows are trained.
        sums: how many iterations may end; each waits for it when its rows are trained.
    """

    def __init__(self, sums: int = 100) -> None:
        self.trained: list[int] = []
        self.summing: list[int] = []
        self.asked = asyncio.Condition()
        self.sums = threading.Semaphore(sums)
        self._loop = asyncio.get_running_loop()

    def step(self, plan, rows_trained) -> StepResult:
        asyncio.run_coroutine_threadsafe(self._note(self.trained, plan.iteration), self._loop).result()
        rows_trained()
        asyncio.run_coroutine_threadsafe(self._note(self.summing, plan.iteration), self._loop).result()
        assert self.sums.acquire(timeout=60)
        return StepResult(0.0, (), np.zeros((1, 1), np.uint16), StepTimes())

    async def _note(self, iterations: list[int], iteration: int) -> None:
        async with self.asked:
            iterations.append(iteration)
            self.asked.notify_all()

    async def until(self, iteration: int) -> None:
        async with self.asked:
            await self.asked.wait_for(lambda: iteration in self.trained)

    async def until_summing(self, iteration: int) -> None:
        async with self.asked:
            await self.asked.wait_for(lambda: iteration in self.summing)


def messages_of(hand_made):
    yield hand_made.plan(0, pulls=[(7, 0, 0)], train=[(7, 0, 0, ALONE)])
    yield hand_made.plan(1, update_rows=hand_made.rows((7, 0, 1)), train=[(7, 0, 1, ALONE)])
    yield hand_made.plan(2, update_rows=hand_made.rows((7, 0, 2)), train=[(7, 0, 2, ALONE)])
    yield FlushPlan(1, 3, hand_made.rows((7, 0, 3)), hand_made.gradients())


def messages_with_a_checkpoint(hand_made):
    """Iteration 1 is the first after the checkpoint, so iteration 2 has the first push that is not of it."""
    yield hand_made.plan(0, pulls=[(7, 0, 0)], train=[(7, 0, 0, ALONE)])
    yield FlushPlan(1, 1, hand_made.rows((7, 0, 1)), hand_made.gradients(), checkpoint=True)
    yield hand_made.plan(1, train=[(7, 0, 1, ALONE)])
    yield hand_made.plan(2, update_rows=hand_made.rows((7, 0, 2)), train=[(7, 0, 2, ALONE)])
    yield hand_made.plan(3, update_rows=hand_made.rows((7, 0, 3)), train=[(7, 0, 3, ALONE)])
    yield FlushPlan(1, 4, hand_made.rows((7, 0, 4)), hand_made.gradients())


def loop_over(hand_made, mover, trainer, thread, sync, messages_of=messages_of, checkpoints=()) -> TrainingLoop:
    async def messages():
        for plan in messages_of(hand_made):
            yield plan

    def confirm(_report):
        pass

    async def take_checkpoint(plan):
        assert plan.iteration in checkpoints

    return TrainingLoop(
        messages(), CacheBook([1], 0, 1, 0), mover,
        lambda current, rows_trained: run_in(thread, trainer.step, current.plan, rows_trained),
        SimpleNamespace(uplink=SimpleNamespace(take=lambda: 0.0)), confirm, take_checkpoint,
        sync=sync,
    )  # fmt: skip


async def settled():
    """Returns when all tasks that can continue have continued."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sync", [WriteThrough(), Bounded(1, 1), Full()])
async def test_what_waits_for_pushes_that_are_not_durable(plans, sync):
    """Write-through: the training of the same iteration. Else: the late pushes of the next one, and its training."""

    async with asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), Trainer()
        with ThreadPoolExecutor(1) as thread:
            running = tasks.create_task(loop_over(plans, mover, trainer, thread, sync).run())
            await mover.sent.wait()
            if not sync.awaits_storage:
                await trainer.until(1)
            await settled()
            assert trainer.trained == ([0] if sync.awaits_storage else [0, 1])
            assert len(mover.stored) == 1
            mover.stored[0].set_result(None)
            await mover.sent_twice.wait()
            mover.stored[1].set_result(None)
            assert (await running).iteration == 3
            assert trainer.trained == [0, 1, 2]


async def test_rows_leave_when_they_are_trained_while_the_workers_sum(plans):
    """So the rows of the next iteration and the sum of this one share a round trip."""
    async with asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), Trainer(sums=1)
        with ThreadPoolExecutor(1) as thread:
            running = tasks.create_task(loop_over(plans, mover, trainer, thread, Full()).run())
            try:
                async with asyncio.timeout(20):
                    await mover.sent.wait()  # the row of iteration 1
                    mover.stored[0].set_result(None)
                    await mover.sent_twice.wait()  # the row of iteration 2
                assert trainer.trained == [0, 1]
            finally:
                trainer.sums.release(3)
            mover.stored[1].set_result(None)
            await running


async def test_no_row_leaves_in_an_epoch_before_the_workers_have_summed_once(plans):
    """Another worker may still load the row at the version of the checkpoint, and the server has only the latest."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), Trainer(sums=0)
        with ThreadPoolExecutor(1) as thread:
            running = tasks.create_task(loop_over(plans, mover, trainer, thread, Full()).run())
            try:
                await trainer.until_summing(0)
                await settled()
                assert not mover.sent.is_set()
                trainer.sums.release()
                await mover.sent.wait()  # the row of iteration 1, when the sum of iteration 0 has ended
                mover.stored[0].set_result(None)
                await mover.sent_twice.wait()
            finally:
                trainer.sums.release(100)
            mover.stored[1].set_result(None)
            assert (await running).iteration == 3


async def test_where_workers_train_copies_of_their_own_no_row_leaves_before_they_have_summed(plans):
    """Another worker may still pull, for the same iteration, the version that the push replaces."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), Trainer(sums=1)
        with ThreadPoolExecutor(1) as thread:
            running = tasks.create_task(loop_over(plans, mover, trainer, thread, Bounded(1, 1)).run())
            try:
                await mover.sent.wait()  # the row of iteration 1, when the sum of iteration 0 has ended
                mover.stored[0].set_result(None)
                await trainer.until_summing(1)
                await settled()
                assert not mover.sent_twice.is_set()
                trainer.sums.release()
                await mover.sent_twice.wait()
            finally:
                trainer.sums.release(100)
            mover.stored[1].set_result(None)
            assert (await running).iteration == 3


async def test_no_row_leaves_after_a_checkpoint_before_the_workers_have_summed(plans):
    """Another worker's cut may still be on its way until then, and the push would be in the checkpoint."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), Trainer(sums=1)
        with ThreadPoolExecutor(1) as thread:
            loop = loop_over(plans, mover, trainer, thread, Full(), messages_with_a_checkpoint, checkpoints=(1,))
            running = tasks.create_task(loop.run())
            try:
                await trainer.until_summing(1)
                await settled()
                assert not mover.sent.is_set()
                trainer.sums.release()
                await mover.sent.wait()  # the row of iteration 1, when its sum has ended
                mover.stored[0].set_result(None)
                await mover.sent_twice.wait()  # the row of iteration 2, while the workers sum
            finally:
                trainer.sums.release(100)
            mover.stored[1].set_result(None)
            assert (await running).iteration == 4


class BusyTrainer(Trainer):
    """Trains its first iteration until the test has seen enough."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = asyncio.Event()
        self.enough = threading.Event()

    def step(self, plan, rows_trained) -> StepResult:
        if plan.iteration == 0:
            self._loop.call_soon_threadsafe(self.busy.set)
            assert self.enough.wait(60)
        return replace(super().step(plan, rows_trained), score_bins=np.zeros((len(plan.labels), 1), np.uint16))


async def test_early_transfers_move_while_the_iteration_before_trains(plans):
    """Pushes ahead of time cost nothing only as long as this holds; a row that trains just now cannot move yet."""
    just_trained, earlier = plans.rows((7, 0, 2)), plans.rows((8, 1, 1))

    async def messages():
        yield plans.plan(0, pulls=[(7, 0, 0), (8, 1, 0)], train=[(7, 0, 0, ALONE), (8, 1, 0, ALONE)])
        yield plans.plan(1, update_rows=replace(earlier, early=1), train=[(7, 0, 1, ALONE)])
        yield plans.plan(2, update_rows=just_trained, train=[(7, 0, 2, ALONE)])
        yield FlushPlan(1, 3, plans.rows((7, 0, 3)), plans.gradients())

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        mover, trainer = HeldMover(tasks), BusyTrainer()
        with ThreadPoolExecutor(1) as thread:
            loop = TrainingLoop(
                messages(), CacheBook([2], 0, 1, 0), mover,
                lambda current, rows_trained: run_in(thread, trainer.step, current.plan, rows_trained),
                SimpleNamespace(uplink=SimpleNamespace(take=lambda: 0.0)), lambda _report: None, None, sync=OnDemand(),
            )  # fmt: skip
            running = tasks.create_task(loop.run())
            try:
                await trainer.busy.wait()
                await asyncio.wait_for(mover.sent.wait(), 20)
                assert trainer.trained == []
            finally:
                trainer.enough.set()
            mover.stored[0].set_result(None)
            await mover.sent_twice.wait()
            mover.stored[1].set_result(None)
            assert (await running).iteration == 3
