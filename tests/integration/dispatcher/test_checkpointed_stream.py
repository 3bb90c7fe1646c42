"""Plan streams of a job that takes checkpoints: its epochs have numbers, and broken streams go on within one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage, Reload
from esd.services.domain.reports import FailureReport
from esd.services.domain.state import JobPhase
from testbed.free_port import free_port
from tests.integration.dispatcher.checkpointed_job import start_job, submit
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.server_client import ServerClient
from tests.support.simple_clients import (
    POLL_SECONDS,
    Dispatcher,
    Worker,
    cut,
    flush_report_of,
    job_with,
    report_of,
    samples,
    state_when,
)

WHOLE_STREAM = ["membership", 0, 1, "flush 2", 2, 3, "flush 4", 4, 5, "flush 6", "end"]


def name_of(message: PlanMessage) -> str | int:
    match message:
        case Membership():
            return "membership"
        case IterationPlan():
            return message.iteration
        case FlushPlan():
            return f"flush {message.iteration}"
        case EndOfStream():
            return "end"
        case Reload():
            return "reload"


async def test_a_stream_that_breaks_after_every_message_brings_each_once(dispatcher: Dispatcher, server: str) -> None:
    job, worker, other = await start_job(dispatcher, server)
    others_end = asyncio.create_task(other.train())
    submission = submit(dispatcher, job, 6)
    came = []
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:
        worker.client = flaky
        async for message in worker.watch():
            came.append(name_of(message))
            proxy.cut()
            match message:
                case Membership():
                    worker.membership = message
                case IterationPlan():
                    await worker.report(message)
                case FlushPlan():
                    await worker.flushed(message)
    assert came == WHOLE_STREAM
    await others_end
    assert await submission == 48
    assert (await dispatcher.client.describe()).phase is JobPhase.FINISHED


async def test_so_does_that_of_the_blocking_client(dispatcher: Dispatcher, server: str) -> None:
    job, worker, other = await start_job(dispatcher, server)
    others_end = asyncio.create_task(other.train())
    submission = submit(dispatcher, job, 6)

    def program(address: str, break_connections: Callable[[], Any]) -> list[str | int]:
        came, membership = [], None
        with DispatcherClient(address) as flaky, flaky.attend(worker.held) as attendance:
            for message in attendance:
                came.append(name_of(message))
                break_connections()
                match message:
                    case Membership():
                        membership = message
                    case IterationPlan():
                        attendance.report(report_of(message))
                    case FlushPlan():
                        asyncio.run(cut(membership, message))
                        attendance.report(flush_report_of(message))
        return came

    loop = asyncio.get_running_loop()
    async with CuttableProxy.running(dispatcher.address) as proxy:
        came = await asyncio.to_thread(program, proxy.address, lambda: loop.call_soon_threadsafe(proxy.cut))
    assert came == WHOLE_STREAM
    await others_end
    assert await submission == 48


async def test_what_is_not_confirmed_when_a_stream_breaks_comes_once(dispatcher: Dispatcher, server: str) -> None:
    job, worker, other = await start_job(dispatcher, server, window=4)
    others_end = asyncio.create_task(other.train())
    submission = submit(dispatcher, job, 4)
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:
        worker.client = flaky
        messages = worker.watch()
        came = [await after_a_cut(proxy, messages) for _ in range(6)]
        assert [name_of(message) for message in came] == ["membership", 0, 1, "flush 2", 2, 3]
        worker.membership = came[0]
        for message in came[1:]:
            await (worker.flushed(message) if isinstance(message, FlushPlan) else worker.report(message))
        last_flush = await after_a_cut(proxy, messages)
        assert name_of(last_flush) == "flush 4"
        end = asyncio.create_task(after_a_cut(proxy, messages))
        assert await asyncio.wait({end}, timeout=0.5) == (set(), {end})  # it does not come again
        await worker.flushed(last_flush)
        assert await end == EndOfStream(4)
    await others_end
    assert await submission == 32


async def after_a_cut(proxy: CuttableProxy, messages: AsyncIterator[PlanMessage]) -> PlanMessage:
    proxy.cut()
    return await anext(messages)


@pytest.mark.parametrize("checkpoint_every", [0, 100])
async def test_a_stream_begins_where_it_is_asked_to(dispatcher: Dispatcher, server: str, checkpoint_every: int) -> None:
    job, worker, other = await start_job(dispatcher, server, window=4, checkpoint_every=checkpoint_every)
    submission = submit(dispatcher, job, 4)
    await asyncio.gather(take(worker, 0, 1), take(other, 0, 1))  # an epoch begins when all are there
    await state_when(dispatcher.client, lambda state: state.iterations_planned == 4)
    assert await take(worker, 2, 2) == ["membership", 2, 3]
    assert await take(worker, 0, 2) == ["membership", 0, 1]
    assert await submission == 32
    async for message in first(worker.watch(), 3):
        if isinstance(message, IterationPlan):
            await worker.report(message)
    assert await take(worker, 2, 2) == ["membership", 2, 3]
    for start in (1, 5):
        with pytest.raises(FailedPrecondition, match=f"iteration {start} on; it has confirmed 2 and 4 are planned"):
            await take(worker, start, 1)


async def first(messages: AsyncIterator[PlanMessage], count: int) -> AsyncIterator[PlanMessage]:
    async for message in messages:
        yield message
        count -= 1
        if count == 0:
            return


async def take(worker: Worker, start: int, plans: int) -> list[str | int]:
    """Reads messages until this number of plans has come."""
    return [name_of(message) async for message in first(worker.watch(start), plans + 1)]


async def test_another_epoch_is_told_and_begins_at_the_last_checkpoint(dispatcher: Dispatcher, server: str) -> None:
    job, worker, other = await start_job(dispatcher, server)
    ends = [asyncio.create_task(other.train())]
    may_go_on = asyncio.Event()

    async def source() -> AsyncIterator[Any]:
        for seed in range(3):
            yield samples(8, seed=seed)
        await may_go_on.wait()
        yield samples(8, seed=3)

    async def fails_in_iteration_2(plan: IterationPlan) -> None:
        if plan.iteration == 2:
            await state_when(dispatcher.client, lambda state: state.checkpoint == 2)
            await worker.send(FailureReport("no space left", plan.epoch))
        await worker.send(report_of(plan))

    submission = asyncio.create_task(dispatcher.client.submit(job.name, source()))
    worker.report = fails_in_iteration_2
    with pytest.raises(StaleEpoch, match=r"is over: worker edge-0 \(slot 0\) cannot go on: no space left"):
        await worker.train_epoch()
    first_epoch = [plan.iteration for plan in worker.plans]
    del worker.report
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:
        worker.client = flaky
        messages = worker.watch()
        assert [name_of(await after_a_cut(proxy, messages)) for _ in range(3)] == ["membership", "reload", 2]
    worker.client = dispatcher.client
    ends.append(asyncio.create_task(worker.train()))
    await state_when(dispatcher.client, lambda state: state.iterations_confirmed == 3)
    may_go_on.set()
    await asyncio.gather(*ends)
    assert await submission == 32

    epoch = worker.membership.epoch
    assert worker.membership.iteration == 2
    assert first_epoch == [0, 1, 2]
    for each in (worker, other):
        assert [plan.iteration for plan in each.plans if plan.epoch == epoch] == [2, 3]
    state = await dispatcher.client.describe()
    assert state.phase is JobPhase.FINISHED
    assert [recovery.epoch for recovery in state.recoveries] == [epoch]


async def test_an_epoch_that_begins_while_a_stream_is_broken_is_told(dispatcher: Dispatcher, server: str) -> None:
    job, worker, other = await start_job(dispatcher, server)
    others_end = asyncio.create_task(other.train())
    submission = submit(dispatcher, job, 1)
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as flaky:
        worker.client = flaky
        messages = worker.watch()
        membership = await anext(messages)
        assert isinstance(membership, Membership)
        away = asyncio.create_task(proxy.cut_for(0.5))
        async with dispatcher.client.attend(worker.held) as beside:
            await beside.report(FailureReport("a cable was cut", membership.epoch))
        with pytest.raises(StaleEpoch, match=f"epoch {membership.epoch} is over, epoch {membership.epoch + 1} has beg"):
            async for _ in messages:
                pass
        await away
    worker.client = dispatcher.client
    await worker.train()
    assert [plan.epoch for plan in worker.plans] == [membership.epoch + 1]
    await others_end
    assert await submission == 8


async def test_a_failure_that_ends_the_job_counts_in_a_later_epoch(dispatcher: Dispatcher, server: str) -> None:
    """Another worker may have missed the failed one, and have ended the epoch before."""
    _, worker, other = await start_job(dispatcher, server)
    attendances = [await each.attend() for each in (worker, other)]
    membership = await anext(attendances[0])
    assert isinstance(membership, Membership)
    await attendances[1].report(FailureReport("worker slot 0 has left the sums", membership.epoch))
    failure = FailureReport("the disk is full", membership.epoch, fatal=True)
    with pytest.raises(StaleEpoch, match="worker slot 0 has left the sums"):
        await attendances[0].broken()
    with pytest.raises(StaleEpoch):
        await attendances[0].report(failure)
    later, _ = [await each.attend() for each in (worker, other)]
    begun = await anext(later)
    assert isinstance(begun, Membership)
    assert begun.epoch == membership.epoch + 1
    await later.report(failure)
    state = await dispatcher.client.describe()
    assert state.failure.startswith("worker edge-0 (slot 0) cannot go on: the disk is full")


async def test_samples_wait_for_an_epoch_for_as_long_as_workers_are_waited_for(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], tmp_path: Path
) -> None:
    """A parameter server that was started again is in a later epoch, which the dispatcher takes up with its workers."""
    recovery_seconds = 0.3
    dispatcher = await start_dispatcher(recovery_seconds=recovery_seconds)
    address = f"127.0.0.1:{free_port()}"
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path, listen=address)
    async with parameter_server(settings):
        job = job_with(parameter_servers=(address,), checkpoint_every=2)
        await dispatcher.client.create_job(job)
    async with parameter_server(settings):
        submission = submit(dispatcher, job, 3)
        assert await asyncio.wait({submission}, timeout=4 * recovery_seconds) == (set(), {submission})
        async with asyncio.TaskGroup() as tasks:
            for name in ("edge-0", "edge-1"):
                tasks.create_task(dispatcher.worker(name).train())
        assert await submission == 24
    assert (await dispatcher.client.describe()).phase is JobPhase.FINISHED


async def test_workers_that_all_die_while_an_epoch_begins_are_waited_for(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    """As when the power of a site fails: the parameter server is back before any worker is."""
    lease_seconds = 1.0
    dispatcher = await start_dispatcher(lease_seconds=lease_seconds)
    async with CuttableProxy.running(server) as proxy:
        job, *workers = await start_job(dispatcher, proxy.address)
        with proxy.holding():
            for worker in workers:
                await worker.attend()
            heard_of = asyncio.get_running_loop().time() + lease_seconds  # on their streams, on which they wait
            await state_when(
                dispatcher.client,
                lambda state: len(state.workers) == 2 and asyncio.get_running_loop().time() > heard_of,
            )
            await dispatcher.dismiss()
            await state_when(dispatcher.client, lambda state: not state.workers)
        async with ServerClient(server, job.table) as shard, asyncio.timeout(60):
            while (await shard.get_checkpoint()).epoch < 3:  # noqa: ASYNC110 - begun at the server, and nobody is there
                await asyncio.sleep(POLL_SECONDS)
        submission = submit(dispatcher, job, 6)
        async with asyncio.TaskGroup() as tasks:
            for name in ("edge-0", "edge-1"):
                tasks.create_task(dispatcher.worker(name).train())
        assert await submission == 48
    assert (await dispatcher.client.describe()).phase is JobPhase.FINISHED


@pytest.mark.parametrize("more", [1, 0], ids=["goes on", "ends"])
async def test_a_stream_that_pauses_is_checkpointed_meanwhile(dispatcher: Dispatcher, server: str, more: int) -> None:
    """Three iterations, then nothing comes until they are covered by a checkpoint; after that, nothing is due."""
    job, *workers = await start_job(dispatcher, server, checkpoint_every=0, checkpoint_seconds=0.5)
    covered = asyncio.Event()

    async def pausing() -> AsyncIterator[SampleBatch]:
        for seed in range(3):
            yield samples(8, seed=seed)
        await covered.wait()
        for seed in range(more):
            yield samples(8, seed=3 + seed)

    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, pausing()))
        state = await state_when(dispatcher.client, lambda state: state.checkpoint == 3)
        assert (state.iterations_confirmed, state.phase) == (3, JobPhase.RUNNING)
        covered.set()
    state = await dispatcher.client.describe()
    assert (state.phase, state.iterations_confirmed, state.checkpoint) == (JobPhase.FINISHED, 3 + more, 3 + more)


async def test_a_stream_without_a_sample_ends_at_the_table_as_it_was_created(
    dispatcher: Dispatcher, server: str
) -> None:
    job, *workers = await start_job(dispatcher, server)
    await asyncio.gather(*(worker.train() for worker in workers), submit(dispatcher, job, 0))
    assert [worker.end for worker in workers] == [EndOfStream(0)] * 2
    assert await dispatcher.client.create_job(job)  # taken up again, there is nothing to do
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert (state.iterations_confirmed, state.checkpoint) == (0, 0)


class Night:
    """A stream that pauses after its first batches until `morning` is set."""

    def __init__(self) -> None:
        self.morning = asyncio.Event()

    async def batches(self, evening: int, next_day: int) -> AsyncIterator[SampleBatch]:
        for seed in range(evening):
            yield samples(8, seed=seed)
        await self.morning.wait()
        for seed in range(evening, evening + next_day):
            yield samples(8, seed=seed)


async def test_a_server_that_restarts_while_the_stream_pauses_is_noticed_by_the_next_sample(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], tmp_path: Path
) -> None:
    """No worker calls the server meanwhile, so the refused sample is the first sign of the restart."""
    dispatcher = await start_dispatcher(recovery_seconds=2)
    address = f"127.0.0.1:{free_port()}"
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path, listen=address)
    night = Night()
    async with asyncio.TaskGroup() as tasks:
        async with parameter_server(settings):
            job, *workers = await start_job(dispatcher, address)
            for worker in workers:
                tasks.create_task(worker.train())
            submission = tasks.create_task(dispatcher.client.submit(job.name, night.batches(3, 2)))
            await state_when(dispatcher.client, lambda state: (state.iterations_confirmed, state.checkpoint) == (3, 2))
        async with parameter_server(settings):
            night.morning.set()
            assert await submission == 40
            state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert state.iterations_confirmed == 5
    (recovery,) = state.recoveries
    assert "the parameter server with the sample log is in another epoch" in recovery.cause


async def flushed_before_the_restart(worker: Worker, plan: FlushPlan) -> None:
    """Sends the report of one flush without a call to the server, which has answered that call before it restarted."""
    del worker.flushed
    await worker.send(flush_report_of(plan))


async def test_a_server_that_restarts_before_a_checkpoint_of_a_pause_is_noticed_by_the_checkpoint(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], tmp_path: Path
) -> None:
    """The restart comes between the last worker's flush and the commit, which is the first call that is refused."""
    dispatcher = await start_dispatcher()
    address = f"127.0.0.1:{free_port()}"
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path, listen=address)
    night = Night()
    async with asyncio.TaskGroup() as tasks:
        async with parameter_server(settings):
            job, *workers = await start_job(dispatcher, address, checkpoint_every=0, checkpoint_seconds=2)
            for worker in workers:
                worker.flushed = partial(flushed_before_the_restart, worker)  # type: ignore[method-assign]
                tasks.create_task(worker.train())
            tasks.create_task(dispatcher.client.submit(job.name, night.batches(3, 1)))
            before = await state_when(dispatcher.client, lambda state: state.iterations_confirmed == 3)
        assert before.checkpoint == 0
        async with parameter_server(settings):
            state = await state_when(dispatcher.client, lambda state: state.checkpoint == 3)
            assert state.recoveries[0].cause.startswith("checkpoint 3 could not be commit")
            night.morning.set()
            await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)


async def test_any_number_of_restarts_while_the_stream_pauses_is_survived(dispatcher: Dispatcher, server: str) -> None:
    """Five epochs in a row without progress fail a job, unless there was nothing that they could have trained."""
    job, *workers = await start_job(dispatcher, server)
    night = Night()
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, night.batches(3, 2)))
        for restarts in range(8):
            await state_when(
                dispatcher.client,
                lambda state, restarts=restarts: (
                    (state.iterations_confirmed, state.checkpoint, len(state.recoveries)) == (3, 2, restarts)
                ),
            )
            assert workers[0].membership is not None
            await workers[0].send(FailureReport("the power failed", workers[0].membership.epoch))
        night.morning.set()
        state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert (state.iterations_confirmed, len(state.recoveries)) == (5, 8)


async def test_a_server_that_dies_between_the_end_of_the_stream_and_the_last_commit_begins_a_recovery(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], tmp_path: Path
) -> None:
    """All workers have flushed at the end when the server loses its rows; the commit is the first call after that."""
    dispatcher = await start_dispatcher()
    address = f"127.0.0.1:{free_port()}"
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path, listen=address)
    flushed, restarted = asyncio.Semaphore(0), asyncio.Event()

    async def flush_around_the_restart(worker: Worker, plan: FlushPlan) -> None:
        assert worker.membership is not None
        await cut(worker.membership, plan)
        if plan.iteration == 5:
            del worker.flushed  # the next epoch has no restart
            flushed.release()
            await restarted.wait()
        await worker.send(flush_report_of(plan))

    async with asyncio.TaskGroup() as tasks:
        async with parameter_server(settings):
            job, *workers = await start_job(dispatcher, address)
            for worker in workers:
                worker.flushed = partial(flush_around_the_restart, worker)  # type: ignore[method-assign]
                tasks.create_task(worker.train())
            submission = submit(dispatcher, job, 5)
            for _ in workers:
                await flushed.acquire()
            await state_when(dispatcher.client, lambda state: state.checkpoint == 4)
        async with parameter_server(settings):
            restarted.set()
            state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert await submission == 40
    assert (state.iterations_confirmed, state.checkpoint) == (5, 5)
    (recovery,) = state.recoveries
    assert recovery.iterations_redone == 1
