"""Plan streams: resumable, told the cause when the job fails, never a hang."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc as pb_grpc
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, NotFound, Unavailable
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership
from esd.services.domain.reports import Lease
from esd.services.domain.state import JobPhase
from esd.services.domain.sync import Replicated
from esd.services.runtime.channel import channel
from esd.services.runtime.status import domain_errors
from esd.services.wire.batches import encode_batch
from tests.support.clock import Clock
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.simple_clients import JOB, Dispatcher, Worker, job_with, samples, state_when, stream


async def start_job(dispatcher: Dispatcher, **changes: object) -> list[Worker]:
    """A running job with its two workers."""
    await dispatcher.client.create_job(job_with(**changes))
    workers = [dispatcher.worker("edge-0"), dispatcher.worker("edge-1")]
    for worker in workers:
        await worker.register()
    return workers


def submit_batches(dispatcher: Dispatcher, count: int) -> asyncio.Task[int]:
    batches = [samples(8, seed=seed) for seed in range(count)]
    return asyncio.create_task(dispatcher.client.submit(JOB.name, stream(batches)))


async def test_broken_stream_goes_on_where_it_broke(dispatcher: Dispatcher) -> None:
    worker, other = await start_job(dispatcher)
    submit = submit_batches(dispatcher, 6)
    others_end = asyncio.create_task(other.train())
    kinds = []
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:
        worker.client = flaky
        async for message in worker.watch():
            kinds.append(message.iteration if isinstance(message, IterationPlan) else type(message))
            proxy.cut()  # after every single message
            match message:
                case IterationPlan():
                    await worker.report(message)
                case FlushPlan():
                    await worker.flushed(message)
    assert kinds == [Membership, 0, 1, 2, 3, 4, 5, FlushPlan, EndOfStream]
    await others_end
    assert await submit == 48


async def test_unconfirmed_plans_may_be_watched_again(dispatcher: Dispatcher) -> None:
    worker, _ = await start_job(dispatcher, window=3)
    submit = submit_batches(dispatcher, 3)
    first = await take(worker, 0, 3)
    again = await take(worker, 1, 2)
    assert [plan.iteration for plan in first] == [0, 1, 2]
    assert [plan.iteration for plan in again] == [1, 2]
    assert again[0].positions.tobytes() == first[1].positions.tobytes()

    await worker.report(first[0])
    for start in (0, 4):
        with pytest.raises(FailedPrecondition, match=f"iteration {start} on; it has confirmed 1 and 3 are planned"):
            await take(worker, start, 1)
    assert await submit == 24


async def take(worker: Worker, start: int, count: int) -> list[IterationPlan]:
    plans: list[IterationPlan] = []
    async for message in worker.watch(start):
        if isinstance(message, IterationPlan):
            plans.append(message)
            if len(plans) == count:
                break
    return plans


async def test_unknown_lease(dispatcher: Dispatcher) -> None:
    await start_job(dispatcher)
    with pytest.raises(NotFound, match="no lease 'nobody'"):
        async with dispatcher.client.attend(Lease("nobody", 1.0)) as attendance:
            await anext(attendance)


async def test_lost_worker_fails_the_job_with_its_name(dispatcher: Dispatcher) -> None:
    clock = Clock(dispatcher.client.describe)
    worker, _ = await start_job(dispatcher)  # the other one registers, and is never heard of again
    assert worker.lease.heartbeat_seconds == 15

    async def endless():
        while True:
            yield samples(8)

    cause = r"job flights failed: worker edge-1 \(slot 1\) sent no heartbeat for 60 s .*ESD_DISPATCHER_LEASE_SECONDS"
    telling = asyncio.gather(
        take(worker, 0, 100),
        dispatcher.client.submit(JOB.name, endless()),
        return_exceptions=True,
    )
    await state_when(dispatcher.client, lambda state: state.iterations_planned > 0)
    await clock.forward(50)
    assert (await dispatcher.client.describe()).phase is JobPhase.RUNNING
    await clock.forward(40)
    for error in await telling:
        assert isinstance(error, FailedPrecondition)
        assert error.args[0].startswith("job flights failed: worker edge-1 (slot 1) sent no heartbeat for 60 s")
    with pytest.raises(FailedPrecondition, match=cause):
        await dispatcher.client.submit(JOB.name, stream([]))
    state = await dispatcher.client.describe()
    assert state.phase is JobPhase.FAILED
    assert "edge-1" in state.failure
    assert await dispatcher.client.create_job(job_with(seed=99))  # a failed job makes room


async def test_worker_lost_before_the_start_frees_its_slot(start_dispatcher) -> None:
    dispatcher = await start_dispatcher(lease_seconds=0.3)
    await dispatcher.client.create_job(JOB)
    lost = dispatcher.worker("lost")
    lost.lease = replace(await lost.register(), heartbeat_seconds=3600.0)
    with pytest.raises(NotFound, match="has expired"):
        await take(lost, 0, 1)
    await dispatcher.worker("edge-0").register()
    assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS


async def test_restarted_worker_outlives_its_old_lease(dispatcher: Dispatcher) -> None:
    clock = Clock(dispatcher.client.describe)
    await dispatcher.client.create_job(JOB)
    worker = dispatcher.worker("edge-0")
    await worker.register()
    await worker.register(instance="another")
    await worker.attend()
    await clock.forward(120)
    assert [w.worker for w in (await dispatcher.client.describe()).workers] == ["edge-0"]


async def test_missing_workers_fail_the_job(start_dispatcher) -> None:
    dispatcher = await start_dispatcher(join_seconds=90)
    clock = Clock(dispatcher.client.describe)
    await dispatcher.client.create_job(JOB)
    worker = dispatcher.worker("edge-0")
    await worker.register()
    taking = asyncio.create_task(take(worker, 0, 1))
    await clock.forward(50)
    assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS
    await clock.forward(60)
    with pytest.raises(FailedPrecondition, match=r"only 1 of 2 workers registered within 90 s .*JOIN_SECONDS"):
        await taking


async def test_time_to_join_ends_with_the_last_worker(start_dispatcher) -> None:
    dispatcher = await start_dispatcher(join_seconds=90, lease_seconds=600)
    clock = Clock(dispatcher.client.describe)
    await start_job(dispatcher)
    await clock.forward(120)
    assert (await dispatcher.client.describe()).phase is JobPhase.RUNNING


async def test_cache_too_small_fails_the_job_with_the_number_it_needs(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    worker = dispatcher.worker("edge-0")
    await worker.register(cache_rows=2)
    await dispatcher.worker("edge-1").register()
    submit = submit_batches(dispatcher, 1)
    with pytest.raises(FailedPrecondition, match=r"job flights failed: .*\b1[0-2]\b.*rows"):
        await take(worker, 0, 1)
    await asyncio.gather(submit, return_exceptions=True)


async def test_replicated_rows_that_fill_a_workers_cache_fail_the_job_before_it_trains(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(job_with(sync=Replicated(30)))
    worker = dispatcher.worker("edge-0")
    await worker.register(cache_rows=30)
    await dispatcher.worker("edge-1").register()
    with pytest.raises(FailedPrecondition, match=r"--sync replicated:30\), and the smallest cache holds 30"):
        await take(worker, 0, 1)


async def test_cut_off_submit_leaves_the_stream_open(dispatcher: Dispatcher) -> None:
    workers = await start_job(dispatcher, window=4)
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:

        async def half():
            yield samples(8, seed=0)
            await state_when(dispatcher.client, lambda s: s.samples_submitted == 8)
            with pytest.raises(FailedPrecondition, match="another Submit call feeds job flights"):
                await dispatcher.client.submit(JOB.name, stream([]))
            proxy.cut()
            yield samples(8, seed=99)

        with pytest.raises(Unavailable):
            await flaky.submit(JOB.name, half())

    async def other_half():
        while True:  # until the dispatcher has noticed the cut
            try:
                return await dispatcher.client.submit(JOB.name, stream([samples(8, seed=1)]))
            except FailedPrecondition:
                continue

    total, *_ = await asyncio.gather(other_half(), *(worker.train() for worker in workers))
    assert total == 16
    assert [len(worker.plans) for worker in workers] == [2, 2]
    assert await dispatcher.client.submit(JOB.name, stream([])) == 16  # the end may be told again
    with pytest.raises(FailedPrecondition, match="the sample stream of job flights has ended after 16 samples"):
        await dispatcher.client.submit(JOB.name, stream([samples(1)]))


async def submit(dispatcher: Dispatcher, *requests: pb.SubmitRequest) -> list[int]:
    """The answers to the messages of one call, which then breaks off."""
    async with channel(dispatcher.address) as opened:
        call = pb_grpc.DispatcherStub(opened).Submit(iter([pb.SubmitRequest(job=JOB.name), *requests]))
        with domain_errors():
            return [response.samples async for response in call]


def piece(source: SampleBatch, start: int, end: int) -> pb.SubmitRequest:
    return pb.SubmitRequest(batch=encode_batch(source[start:end]), position=start)


async def test_samples_that_come_again_are_ignored(dispatcher: Dispatcher) -> None:
    workers = await start_job(dispatcher)
    source = samples(24)
    assert await submit(dispatcher, piece(source, 0, 10), piece(source, 0, 10), piece(source, 3, 9)) == [0, 10, 10, 10]
    assert await submit(dispatcher, piece(source, 8, 15), piece(source, 0, 24)) == [10, 15, 24]
    await submit(dispatcher, pb.SubmitRequest(end=True))
    await asyncio.gather(*(worker.train() for worker in workers))
    trained = [
        np.concatenate([plan.dense[:, 0] for plan in plans]) for plans in zip(*(w.plans for w in workers), strict=True)
    ]
    # The dense feature is the sample's number.
    assert [sorted(numbers) for numbers in trained] == [list(range(start, start + 8)) for start in (0, 8, 16)]


async def test_a_gap_in_the_stream_is_refused(dispatcher: Dispatcher) -> None:
    await start_job(dispatcher)
    source = samples(24)
    with pytest.raises(FailedPrecondition, match="begins at sample 9, job flights has accepted 8: continue from there"):
        await submit(dispatcher, piece(source, 0, 8), piece(source, 9, 12))
    assert (await dispatcher.client.describe()).samples_submitted == 8


async def test_source_that_raises_leaves_the_stream_open(dispatcher: Dispatcher) -> None:
    await start_job(dispatcher)

    async def unreadable():
        yield samples(8)
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        await dispatcher.client.submit(JOB.name, unreadable())
    assert (await dispatcher.client.describe()).phase is JobPhase.RUNNING


async def test_stopping_dispatcher_lets_everyone_go(dispatcher: Dispatcher) -> None:
    worker, _ = await start_job(dispatcher)
    submit = submit_batches(dispatcher, 100)
    watching = asyncio.Event()

    async def watch() -> None:
        async with AsyncDispatcherClient(dispatcher.address, patience=0.0) as impatient:
            worker.client = impatient
            async for _ in worker.watch():
                watching.set()

    watch_task = asyncio.create_task(watch())
    await watching.wait()
    await dispatcher.stop()
    for task in (watch_task, submit):
        with pytest.raises(Unavailable):
            await task


async def test_worker_done_with_its_flush_may_go(dispatcher: Dispatcher) -> None:
    clock = Clock(dispatcher.client.describe)
    worker, other = await start_job(dispatcher)
    submit = submit_batches(dispatcher, 0)

    await other.attend()
    async for message in worker.watch():
        if isinstance(message, FlushPlan):
            await worker.flushed(message)
            break
    await worker.leave()
    await clock.forward(120)
    assert (await dispatcher.client.describe()).phase is JobPhase.FLUSHING
    await other.train()
    assert (await dispatcher.client.describe()).phase is JobPhase.FINISHED
    assert await submit == 0
    assert [type(message) async for message in worker.watch()] == [Membership, EndOfStream]  # no second flush
