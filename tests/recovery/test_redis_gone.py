"""A Redis that is gone for longer than all patience ends the job, whose error names the last checkpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc as pb_grpc
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import StaleEpoch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import Membership
from esd.services.domain.reports import FailureReport
from esd.services.domain.state import JobPhase
from esd.services.runtime.channel import channel
from esd.services.wire.batches import encode_batch
from testbed.redis_server import RedisServer
from tests.support.simple_clients import POLL_SECONDS, Worker, job_with, samples, state_when


async def epoch_of(worker: Worker) -> int:
    """Asks for plans until there is an epoch."""
    while True:
        try:
            async with aclosing(worker.watch()) as messages:
                async for message in messages:
                    if isinstance(message, Membership):
                        return message.epoch
        except StaleEpoch:
            continue


@asynccontextmanager
async def running(redis: RedisServer, **patience: float) -> AsyncIterator[tuple[AsyncDispatcherClient, JobSpec]]:
    """A job over a parameter server that keeps its rows in Redis, and a dispatcher of little patience."""
    servers = ParameterServerSettings(store=redis.url, metrics_port=None, grace_seconds=0)
    settings = DispatcherSettings(**{"recovery_seconds": 1.0, "metrics_port": None, "grace_seconds": 0} | patience)
    async with (
        parameter_server(servers) as server,
        serve_dispatcher(settings) as dispatcher,
        AsyncDispatcherClient(dispatcher.address) as client,
    ):
        job = job_with(checkpoint_every=5, parameter_servers=(server.address,))
        await client.create_job(job)
        yield client, job


async def test_the_job_ends_and_names_the_last_checkpoint(own_redis):
    async with running(own_redis, rejoin_seconds=0.1) as (client, _):
        workers = [Worker(client, f"edge-{slot}") for slot in range(2)]
        for worker in workers:
            await worker.register()
        (epoch, _) = await asyncio.gather(*(epoch_of(worker) for worker in workers))

        own_redis.kill()
        await workers[0].send(FailureReport("Redis does not answer", epoch))
        asking = [asyncio.create_task(epoch_of(worker)) for worker in workers]
        state = await state_when(client, lambda state: state.phase is JobPhase.FAILED)
        assert f"Redis at {own_redis.address} is out of reach" in state.failure
        assert state.failure.endswith("; the last checkpoint is 0")
        await asyncio.gather(*asking, return_exceptions=True)


async def test_a_full_redis_is_waited_for_on_the_way_back(own_redis, caplog):
    async with running(own_redis, recovery_seconds=60.0) as (client, _):
        workers = [Worker(client, f"edge-{slot}") for slot in range(2)]
        for worker in workers:
            await worker.register()
        (epoch, _) = await asyncio.gather(*(epoch_of(worker) for worker in workers))

        own_redis.cli("config", "set", "maxmemory", "1mb")
        await workers[0].send(FailureReport("something passing", epoch))
        asking = [asyncio.create_task(epoch_of(worker)) for worker in workers]
        async with asyncio.timeout(60):
            while "the job waits up to 300 s for room: Redis at" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
        own_redis.cli("config", "set", "maxmemory", "0")
        assert all(each > epoch for each in await asyncio.gather(*asking))


async def test_so_does_a_sample_log_that_cannot_be_written(own_redis):
    async with running(own_redis) as (client, job):

        async def two_batches():
            yield samples(8)
            own_redis.kill()
            yield samples(8)

        submission = asyncio.create_task(client.submit(job.name, two_batches()))
        state = await state_when(client, lambda state: state.phase is JobPhase.FAILED)
        assert state.failure.startswith("the sample log cannot be written: Redis at")
        assert state.failure.endswith("; the last checkpoint is 0")
        assert state.samples_submitted == 8
        await asyncio.gather(submission, return_exceptions=True)


async def test_acknowledged_says_what_it_is_worth(own_redis):
    for store, durable in ((own_redis.url, True), ("memory", False)):
        servers = ParameterServerSettings(store=store, metrics_port=None, grace_seconds=0)
        settings = DispatcherSettings(metrics_port=None, grace_seconds=0)
        async with parameter_server(servers) as server, serve_dispatcher(settings) as dispatcher:
            job = job_with(checkpoint_every=5, parameter_servers=(server.address,))
            async with AsyncDispatcherClient(dispatcher.address) as client:
                await client.create_job(job)
            async with channel(dispatcher.address) as opened:
                requests = [pb.SubmitRequest(job=job.name), pb.SubmitRequest(batch=encode_batch(samples(3)))]
                call = pb_grpc.DispatcherStub(opened).Submit(iter(requests))
                answers = [(answer.samples, answer.durable) async for answer in call]
            assert answers == [(0, durable), (3, durable)]
