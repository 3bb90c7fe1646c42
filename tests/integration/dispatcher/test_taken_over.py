"""Several dispatchers try to run one job: one trains it, and none trains after another one's results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import FailureReport
from esd.services.domain.state import JobPhase
from tests.support.server_client import ServerClient
from tests.support.simple_clients import (
    JOB,
    Dispatcher,
    Worker,
    job_with,
    run_to_the_end,
    samples,
    state_when,
    stream,
    train_all,
)

BATCHES = [samples(8, seed=seed) for seed in range(6)]


@pytest.fixture
async def shards() -> AsyncIterator[tuple[str, ...]]:
    """The addresses of two parameter servers."""
    async with AsyncExitStack() as stack:
        settings = [
            ParameterServerSettings(metrics_port=None, grace_seconds=0, shard=shard, shards=2) for shard in (0, 1)
        ]
        yield tuple([(await stack.enter_async_context(parameter_server(each))).address for each in settings])


async def without_end(batches: list[SampleBatch]) -> AsyncIterator[SampleBatch]:
    for batch in batches:
        yield batch
    await asyncio.Event().wait()


@asynccontextmanager
async def training(dispatcher: Dispatcher, job: JobSpec) -> AsyncIterator[list[Worker]]:
    """Has a dispatcher train a job whose stream does not end, and yields its workers."""
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(2)]
    for worker in workers:
        await worker.register()
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(worker.train()) for worker in workers]
    tasks.append(asyncio.create_task(dispatcher.client.submit(job.name, without_end(BATCHES[:4]))))
    try:
        yield workers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_dispatcher_ends_and_leaves_the_model_as_it_is(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    job = job_with(parameter_servers=(server,), checkpoint_every=2)
    first = await start_dispatcher()
    async with training(first, job) as workers:
        await state_when(first.client, lambda state: state.checkpoint == 2 and state.iterations_confirmed == 4)

        await run_to_the_end(await start_dispatcher(), job, BATCHES[4:])  # the others are in the sample log
        async with ServerClient(server, job.table) as shard:
            made = await shard.get_checkpoint()

        assert workers[0].membership is not None
        await workers[0].send(FailureReport("a parameter server was away", workers[0].membership.epoch))
        state = await state_when(first.client, lambda state: state.phase is JobPhase.FAILED)
        assert "holds checkpoint 6, which this dispatcher has not made (its last one is 2)" in state.failure
        async with ServerClient(server, job.table) as shard:
            assert await shard.get_checkpoint() == made


async def test_it_ends_as_well_where_the_other_one_has_made_no_checkpoint(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], shards: tuple[str, ...]
) -> None:
    job = job_with(parameter_servers=shards, checkpoint_every=100)
    first, second = await start_dispatcher(), await start_dispatcher()
    async with training(first, job) as workers:
        await state_when(first.client, lambda state: state.iterations_confirmed == 4)

        await second.client.create_job(job)
        assert workers[0].membership is not None
        await workers[0].send(FailureReport("its pushes are refused", workers[0].membership.epoch))
        state = await state_when(first.client, lambda state: state.phase is JobPhase.FAILED)
        assert "another dispatcher has taken table 'embeddings' over, with epoch" in state.failure

    others = [second.worker(f"edge-{slot}") for slot in range(2)]
    await train_all(second, job, others, stream(BATCHES[4:]))  # the others are in the sample log
    assert {plan.iteration for plan in others[0].plans} == set(range(6))


async def test_of_dispatchers_that_begin_at_once_one_trains(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], shards: tuple[str, ...]
) -> None:
    dispatchers = [await start_dispatcher(), await start_dispatcher()]
    for table in ("first", "second", "third"):
        tables = (replace(JOB.table, name=table),)
        job = job_with(parameter_servers=shards, checkpoint_every=2, tables=tables)
        async with asyncio.timeout(60):
            ends = await asyncio.gather(
                *(run_to_the_end(each, job, BATCHES) for each in dispatchers), return_exceptions=True
            )
        assert [isinstance(end, BaseException) for end in ends].count(False) == 1, ends
        epochs = [{plan.epoch for worker in each.workers for plan in worker.plans} for each in dispatchers]
        assert not epochs[0] & epochs[1], "two dispatchers train in one epoch"
        for address in shards:
            async with ServerClient(address, job.table) as shard:
                stored = await shard.get_checkpoint()
            assert (stored.checkpoint, stored.finished) == (6, True)
        for each in dispatchers:
            await each.dismiss()
            each.workers.clear()


async def test_a_job_that_cannot_begin_leaves_the_running_one_alone(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    job = job_with(parameter_servers=(server,), checkpoint_every=2)
    first, second = await start_dispatcher(), await start_dispatcher()
    await first.client.create_job(job)
    async with ServerClient(server, job.table) as shard:
        before = await shard.get_checkpoint()
        with pytest.raises(FailedPrecondition, match="of a job that differs in batch_size"):
            await second.client.create_job(job_with(parameter_servers=(server,), checkpoint_every=2, batch_size=16))
        assert await shard.get_checkpoint() == before


async def test_what_is_logged_outlives_a_late_attempt_at_clearing_the_log_for_a_new_job(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher had given the attempt up, and made another one; no worker has come so far."""
    cleared: list[int] = []
    trim_samples = CheckpointStore.trim_samples

    async def recorded(store: CheckpointStore, position: int | None, epoch: int) -> None:
        cleared.append(epoch)
        await trim_samples(store, position, epoch)

    monkeypatch.setattr(CheckpointStore, "trim_samples", recorded)
    job = job_with(parameter_servers=(server,), checkpoint_every=100)
    dispatcher = await start_dispatcher()
    await dispatcher.client.create_job(job)
    async with ServerClient(server, job.table) as shard, asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(dispatcher.client.submit(job.name, without_end(BATCHES[:4])))
        await state_when(dispatcher.client, lambda state: state.samples_submitted == 32)
        (epoch,) = cleared
        with pytest.raises(StaleEpoch):
            await shard.trim_samples(None, epoch=epoch)
        assert len(await shard.read_samples(epoch=(await shard.get_checkpoint()).epoch)) == 4
        submitting.cancel()
