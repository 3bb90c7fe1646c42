"""A job's end makes its tables read-only on every shard, also when the dispatcher is lost while it does so."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec, equal_workloads
from esd.services.domain.state import JobPhase
from tests.support.server_client import ServerClient
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples, state_when


@pytest.fixture
async def shards() -> AsyncIterator[tuple[str, ...]]:
    """The addresses of two parameter servers."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0, shard=index, shards=2))
            )
            for index in range(2)
        ]
        yield tuple(server.address for server in servers)


async def finished(job: JobSpec) -> list[bool]:
    found = []
    for address in job.parameter_servers:
        async with ServerClient(address, job.table) as shard:
            found.append((await shard.get_checkpoint()).finished)
    return found


async def test_the_last_checkpoint_finishes_the_table_on_every_shard(
    dispatcher: Dispatcher, shards: tuple[str, ...]
) -> None:
    job = job_with(parameter_servers=shards, checkpoint_every=2)
    await dispatcher.client.create_job(job)
    assert await finished(job) == [False, False]
    await run_to_the_end(dispatcher, job, [samples(40)])
    await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert await finished(job) == [True, True]
    async with ServerClient(shards[0], job.table) as shard:
        present = (await shard.get_checkpoint()).epoch
        with pytest.raises(FailedPrecondition, match="table 'embeddings' is finished"):
            await shard.put_dense(b"of somebody else", epoch=present)


async def test_the_next_dispatcher_finishes_what_the_last_one_could_not(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], shards: tuple[str, ...]
) -> None:
    job = job_with(parameter_servers=shards, checkpoint_every=2)
    first = await start_dispatcher()
    await run_to_the_end(first, job, [samples(40)])
    await state_when(first.client, lambda state: state.phase is JobPhase.FINISHED)
    await first.stop()
    async with ServerClient(shards[1], job.table) as late:  # as if the commit had not reached it
        stored = await late.get_checkpoint()
        await late.restore(stored.checkpoint, epoch=stored.epoch + 5)
    assert await finished(job) == [True, False]

    second = await start_dispatcher()
    await second.client.create_job(job)
    await state_when(second.client, lambda state: state.phase is JobPhase.FINISHED)
    assert await finished(job) == [True, True]


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_finished_job_is_reported_to_one_that_asks_for_other_workers(
    workers: int, start_dispatcher: Callable[..., Awaitable[Dispatcher]], shards: tuple[str, ...]
) -> None:
    """A release of the chart that is rolled back asks so: its driver is started with the workers of an earlier run."""
    job = job_with(parameter_servers=shards, checkpoint_every=2, workers=2, batch_size=12)
    first = await start_dispatcher()
    await run_to_the_end(first, job, [samples(48)])
    ended = await state_when(first.client, lambda state: state.phase is JobPhase.FINISHED)
    await first.stop()

    second = await start_dispatcher()
    await second.client.create_job(replace(job, workers=workers, workloads=equal_workloads(12, workers)))
    shown = await state_when(second.client, lambda state: state.phase is JobPhase.FINISHED)
    assert [each.worker for each in shown.workers] == [each.worker for each in ended.workers]
    assert shown.iterations_confirmed == ended.iterations_confirmed
