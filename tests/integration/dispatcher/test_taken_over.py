"""A job that another dispatcher has taken up: the first one must not train on behind what the other has made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ps_server.service.app import parameter_server
from ps_server.service.settings import ParameterServerSettings
from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.batches import SampleBatch
from services.domain.reports import FailureReport
from services.domain.state import JobPhase
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples, state_when

BATCHES = [samples(8, seed=seed) for seed in range(6)]


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as served:
        yield served.address


async def without_end(batches: list[SampleBatch]) -> AsyncIterator[SampleBatch]:
    for batch in batches:
        yield batch
    await asyncio.Event().wait()


async def test_the_first_dispatcher_ends_and_leaves_the_model_as_it_is(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    job = job_with(parameter_servers=(server,), checkpoint_every=2)
    first = await start_dispatcher()
    await first.client.create_job(job)
    workers = [first.worker(f"edge-{slot}") for slot in range(2)]
    for worker in workers:
        await worker.register()
    tasks = [asyncio.create_task(worker.train()) for worker in workers]
    tasks.append(asyncio.create_task(first.client.submit(job.name, without_end(BATCHES[:4]))))
    await state_when(first.client, lambda state: state.checkpoint == 2 and state.iterations_confirmed == 4)

    await run_to_the_end(await start_dispatcher(), job, BATCHES[4:])  # the others are in the sample log
    async with AsyncParameterServerClient(server, job.table) as shard:
        made = await shard.get_checkpoint()

    assert workers[0].membership is not None
    await workers[0].send(FailureReport("a parameter server was away", workers[0].membership.epoch))
    state = await state_when(first.client, lambda state: state.phase is JobPhase.FAILED)
    assert "holds checkpoint 6, which this dispatcher has not made (its last one is 2)" in state.failure
    async with AsyncParameterServerClient(server, job.table) as shard:
        assert await shard.get_checkpoint() == made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
