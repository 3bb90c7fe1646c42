"""Observers see every plan of a job once, with the reason and the receivers of each move, and slow nothing down."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.service.run import watch
from esd.dispatcher.service.run.watch import MOST_OBSERVERS
from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from esd.services.domain.plans import IterationPlan
from esd.services.domain.sync import Full, OnDemand, Sync
from esd.services.domain.watched import MoveReason, Moves, PlanStage, WatchedPlans
from esd.services.runtime import metrics
from esd.services.runtime.channel import channel
from esd.services.wire import pieces
from esd.services.wire.watched import JoinedPlans, encode_watched
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.simple_clients import Dispatcher, Worker, job_with, run_to_the_end, samples, state_when

ITERATIONS = 24


async def seen_by(plans: AsyncIterator[WatchedPlans]) -> list[WatchedPlans]:
    return [each async for each in plans]


def expected_moves(plans: Sequence[IterationPlan], slot: int) -> dict[tuple[MoveReason, bool], tuple[Any, Any]]:
    """Returns the ids of each reason and the count by worker, row by row; `moves_of` computes them by columns."""
    plan, pulled = plans[slot], [set(each.pulls.ids.tolist()) for each in plans]
    found: dict[tuple[MoveReason, bool], tuple[list[int], Counter[int]]] = {}

    def add(reason: MoveReason, gradients: bool, row: int, workers: Sequence[int] = ()) -> None:
        ids, by_worker = found.setdefault((reason, gradients), ([], Counter()))
        ids.append(row)
        by_worker.update(workers)

    direct = dict(zip(plan.direct_pulls.places.tolist(), plan.direct_pulls.peers.tolist(), strict=True))
    for place, row in enumerate(plan.pulls.ids.tolist()):
        add(
            MoveReason.DIRECT_PULL if place in direct else MoveReason.PULL,
            False,
            row,
            [direct[place]] if place in direct else [],
        )
    direct = dict(zip(plan.direct_pushes.places.tolist(), plan.direct_pushes.peers.tolist(), strict=True))
    for gradients, transfers in ((False, plan.update_rows), (True, plan.update_gradients.rows)):
        for place, row in enumerate(transfers.ids.tolist()):
            wanting = [worker for worker, ids in enumerate(pulled) if row in ids]
            if not gradients and place in direct:
                add(MoveReason.DIRECT_PUSH, False, row, [direct[place]])
            else:
                add(MoveReason.UPDATE_PUSH if wanting else MoveReason.AHEAD_PUSH, gradients, row, wanting)
    for gradients, transfers in ((False, plan.evict_rows), (True, plan.evict_gradients.rows)):
        for row in transfers.ids.tolist():
            add(MoveReason.EVICT_PUSH, gradients, row)
    for row in (*plan.drops.ids.tolist(), *plan.discards.ids.tolist()):
        add(MoveReason.DROP, False, row)
    return {key: (ids, dict(counts)) for key, (ids, counts) in found.items()}


def as_shown(moves: Moves) -> tuple[Any, Any]:
    assert moves.ids is not None
    assert len(moves.ids) == moves.rows
    return moves.ids.tolist(), {worker: count for worker, count in enumerate(moves.by_worker.tolist()) if count}


@pytest.mark.parametrize(("sync", "reasons"), [
    (OnDemand(), {MoveReason.PULL, MoveReason.UPDATE_PUSH, MoveReason.EVICT_PUSH, MoveReason.DROP}),
    (Full(), {MoveReason.PULL, MoveReason.AHEAD_PUSH}),
    (OnDemand(direct=True), {MoveReason.PULL, MoveReason.DIRECT_PULL, MoveReason.DIRECT_PUSH}),
])  # fmt: skip
async def test_each_row_moves_for_its_reason_and_its_workers(
    sync: Sync, reasons: set[MoveReason], dispatcher: Dispatcher
) -> None:
    job = job_with(workers=3, batch_size=12, sync=sync)
    await dispatcher.client.create_job(job)
    watching = asyncio.create_task(seen_by(dispatcher.client.watch_plans(job.name, 0, ids=True)))
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(3)]
    for worker in workers:
        await worker.register(cache_rows=40, address=f"{worker.name}:1")
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        batches = [samples(12, seed=seed, job=job) for seed in range(ITERATIONS)]
        tasks.create_task(dispatcher.client.submit(job.name, batches))
    *watched, end = await watching
    assert [(each.iteration, each.stage) for each in watched] == [(at, PlanStage.ITERATION) for at in range(ITERATIONS)]
    assert (end.stage, end.iteration) == (PlanStage.END, ITERATIONS)
    found = set()
    for at, seen in enumerate(watched):
        plans = [worker.plans[at] for worker in workers]
        for slot, worker in enumerate(seen.workers):
            assert (worker.worker, worker.slot) == (f"edge-{slot}", slot)
            assert worker.samples == len(plans[slot].labels)
            shown = {(moves.reason, moves.gradients): as_shown(moves) for moves in worker.moves}
            assert shown == expected_moves(plans, slot)
            found |= {moves.reason for moves in worker.moves}
    assert found >= reasons
    flushed = [sum(moves.rows for moves in each.moves) for each in end.workers]
    assert flushed == [len(worker.flush.rows) + len(worker.flush.gradients) for worker in workers]  # type: ignore[union-attr]


async def test_every_plan_is_seen_once_across_a_recovery_and_broken_streams(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    """One observer's stream breaks all the time, the other's never; a worker is lost, and another one comes."""
    dispatcher = await start_dispatcher(lease_seconds=3.0, rejoin_seconds=600.0)
    job = job_with(parameter_servers=(server,), checkpoint_every=4)
    lost = asyncio.Event()

    async def source() -> AsyncIterator[SampleBatch]:
        for seed in range(ITERATIONS):
            if seed == 14:
                await lost.wait()
            yield samples(8, seed=seed)

    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(CuttableProxy.running(dispatcher.address))
        flaky, other = [
            await stack.enter_async_context(AsyncDispatcherClient(address))
            for address in (proxy.address, dispatcher.address)
        ]
        await dispatcher.client.create_job(job)
        proxy.cut_after(900, again=lambda: 900)
        whole = asyncio.create_task(seen_by(dispatcher.client.watch_plans(job.name, 0)))
        broken = asyncio.create_task(seen_by(flaky.watch_plans(job.name, 0)))
        stays, goes, comes = Worker(dispatcher.client, "a"), Worker(other, "b"), Worker(other, "b")
        training = [asyncio.create_task(each.train()) for each in (stays, goes)]
        submission = asyncio.create_task(dispatcher.client.submit(job.name, source()))
        await state_when(dispatcher.client, lambda state: (state.checkpoint, state.iterations_confirmed) == (12, 14))
        training[1].cancel()
        await goes.leave()
        await state_when(dispatcher.client, lambda state: len(state.workers) == 1)
        training[1] = asyncio.create_task(comes.train())
        lost.set()
        await submission
        await asyncio.gather(*training)
        for worker in (stays, comes):
            await worker.leave()
        async with asyncio.timeout(60):
            seen = [each.position for each in await whole]
            again = [each.position for each in await broken]
    assert proxy.cuts > 3
    assert again == seen
    assert all(before < after for before, after in itertools.pairwise(seen)), "each once, in order"
    iterations = [position[:2] for position in seen if position[2] == PlanStage.ITERATION.value]
    assert {(plan.epoch, plan.iteration) for plan in stays.plans} <= set(iterations)
    first, second = (
        sorted(at for epoch, at in iterations if epoch == number) for number in sorted({each[0] for each in iterations})
    )
    assert (first, second) == (list(range(14)), list(range(12, ITERATIONS)))
    assert next(position[2] for position in seen if position[:2] == (seen[-1][0], 12)) == PlanStage.RELOAD.value
    checkpoints = [position[1] for position in seen if position[2] == PlanStage.CHECKPOINT.value]
    assert checkpoints == [4, 8, 12, 16, 20]


async def test_an_observer_begins_where_it_wants_to(dispatcher: Dispatcher) -> None:
    job = job_with()
    await dispatcher.client.create_job(job)
    early = asyncio.create_task(seen_by(dispatcher.client.watch_plans(job.name, 8)))  # before there is an epoch
    async with asyncio.timeout(60):
        while metrics.PLAN_OBSERVERS._value.get() < 1:  # noqa: ASYNC110 - no call waits for observers
            await asyncio.sleep(0.01)
    await run_to_the_end(dispatcher, job, [samples(80)])
    assert [each.iteration for each in await early] == [8, 9, 10]
    late = await seen_by(dispatcher.client.watch_plans(job.name, 7))
    assert [each.iteration for each in late] == [7, 8, 9, 10]
    assert all(moves.ids is None for each in late for worker in each.workers for moves in worker.moves)
    assert await seen_by(dispatcher.client.watch_plans(job.name)) == [], "the next plan, of a job that is finished"

    def blocking() -> list[int]:
        with DispatcherClient(dispatcher.address) as client:
            return [each.iteration for each in client.watch_plans(job.name, 8)]

    assert await asyncio.to_thread(blocking) == [8, 9, 10]
    with pytest.raises(NotFound, match="no job 'clicks'"):
        await seen_by(dispatcher.client.watch_plans("clicks", 0))


async def test_long_plans_come_in_pieces_and_are_whole(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with()
    dispatcher = await start_dispatcher()
    await run_to_the_end(dispatcher, job, [samples(80)])
    whole = await seen_by(dispatcher.client.watch_plans(job.name, 0, ids=True))
    assert max(encode_watched(each).ByteSize() for each in whole) > 3 * 150
    await dispatcher.dismiss()

    monkeypatch.setattr(pieces, "PIECE_BYTES", 150)
    monkeypatch.setattr(watch, "_LATEST_BYTES", 1000)  # no message is kept for the next observer
    dispatcher = await start_dispatcher()
    await run_to_the_end(dispatcher, job, [samples(80)])
    for _ in range(2):
        seen = await seen_by(dispatcher.client.watch_plans(job.name, 0, ids=True))
        assert [each.as_json() for each in seen] == [each.as_json() for each in whole]
    async with channel(dispatcher.address) as open_channel:
        request = pb.WatchPlansRequest(job=job.name, from_iteration=0, ids=True)
        sent = [
            message.ByteSize() async for message in dispatcher_pb2_grpc.DispatcherStub(open_channel).WatchPlans(request)
        ]
    assert len(sent) > 2 * len(whole)
    assert max(sent) < 150 + 64


async def test_plans_that_are_no_longer_kept_are_refused_by_name(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]],
) -> None:
    dispatcher = await start_dispatcher(plan_history_bytes=1)
    await run_to_the_end(dispatcher, job_with(), [samples(80)])
    with pytest.raises(FailedPrecondition, match=r"iteration 3 of epoch \d+ are not kept.*PLAN_HISTORY_BYTES"):
        await seen_by(dispatcher.client.watch_plans("flights", 3))


async def test_a_failure_of_the_job_follows_its_last_plans(dispatcher: Dispatcher) -> None:
    job = job_with()
    await dispatcher.client.create_job(job)
    plans = dispatcher.client.watch_plans(job.name, 0)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(2)]
    for worker in workers:
        await worker.register()
    training = [asyncio.create_task(worker.train()) for worker in workers]
    submission = asyncio.create_task(dispatcher.client.submit(job.name, _endless()))
    assert [(await anext(plans)).iteration for _ in range(3)] == [0, 1, 2]
    await dispatcher.client.cancel_job(job.name, "enough")
    with pytest.raises(FailedPrecondition, match="enough"):
        await seen_by(plans)
    for task in (submission, *training):
        with suppress(FailedPrecondition):
            await task


async def _endless() -> AsyncIterator[SampleBatch]:
    for seed in itertools.count():
        yield samples(8, seed=seed)


async def test_an_observer_that_does_not_read_slows_no_job_and_learns_what_it_has_lost(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]],
) -> None:
    """The history holds a few iterations only, and the flow control of the stream a few more."""
    dispatcher = await start_dispatcher(plan_history_bytes=100_000)
    job = job_with(batch_size=8000, fields=8)
    await dispatcher.client.create_job(job)
    async with AsyncDispatcherClient(dispatcher.address) as observing:
        plans = observing.watch_plans(job.name, 0, ids=True)
        workers = [dispatcher.worker(f"edge-{slot}") for slot in range(2)]
        for worker in workers:
            await worker.register(cache_rows=200_000)
        rng = np.random.default_rng(1)
        batches = [
            replace(batch, ids=rng.integers(0, 2**40, batch.ids.shape, dtype=np.uint64))
            for batch in (samples(8000, seed=seed, job=job) for seed in range(ITERATIONS // 2))
        ]
        async with asyncio.TaskGroup() as tasks:
            for worker in workers:
                tasks.create_task(worker.train())
            tasks.create_task(_first_then(dispatcher, plans, batches))
        with pytest.raises(FailedPrecondition, match=r"too slow: \d+ plans .* dropped.*PLAN_HISTORY_BYTES"):
            await seen_by(plans)


async def _first_then(
    dispatcher: Dispatcher, plans: AsyncIterator[WatchedPlans], batches: Sequence[SampleBatch]
) -> None:
    """Submits all samples, of which the observer sees the first plans only."""
    submission = asyncio.create_task(dispatcher.client.submit("flights", batches))
    assert (await anext(plans)).iteration == 0
    await submission


async def test_observers_have_a_limit(dispatcher: Dispatcher) -> None:
    job = job_with()
    await dispatcher.client.create_job(job)
    watching = [
        asyncio.create_task(seen_by(dispatcher.client.watch_plans(job.name))) for _ in range(MOST_OBSERVERS + 1)
    ]
    done, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    (refused,) = done
    assert isinstance(refused.exception(), ResourceExhausted)
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)


def test_plans_among_the_pieces_of_others_are_refused() -> None:
    joined = JoinedPlans()
    assert joined.add(pb.WatchPlansResponse(piece=pb.Piece(data=b"x", left=4))) is None
    with pytest.raises(InvalidArgument, match="plans follow 1 pieces of others that are not complete"):
        joined.add(pb.WatchPlansResponse(epoch=1))
