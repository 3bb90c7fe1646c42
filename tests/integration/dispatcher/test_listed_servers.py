"""Parameter servers that are other shards than the job lists: an unnoticed mistake would leave half a table each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import FailedPrecondition, NotFound
from esd.services.domain.jobs import JobSpec
from esd.worker.service.link import Link
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.settings import WorkerSettings
from tests.support.server_client import ServerClient
from tests.support.simple_clients import Dispatcher, job_with

ALONE = (0, 1)
WORKER = WorkerSettings(name="a", dispatcher="127.0.0.1:1", link=1e9, cache_rows=8)

# Which shards the servers are that the job lists, one that is wrong, and what is said of such.
MISTAKES = {
    "each of two is alone": ([ALONE, ALONE], 0, "as shard [01] of 2, and it is shard 0 of 1"),
    "in another order": ([(1, 2), (0, 2)], 0, "as shard (0 of 2, and it is shard 1|1 of 2, and it is shard 0) of 2"),
    "one is missing": ([(0, 2)], 0, "as shard 0 of 1, and it is shard 0 of 2"),
    "two are the same": ([(0, 2), (0, 2)], 1, "as shard 1 of 2, and it is shard 0 of 2"),
    "one of three is of two": ([(0, 3), (1, 2), (2, 3)], 1, "as shard 1 of 3, and it is shard 1 of 2"),
}


@asynccontextmanager
async def job_on(shards: Sequence[tuple[int, int]], **changes: int) -> AsyncIterator[JobSpec]:
    async with AsyncExitStack() as stack:
        addresses = []
        for shard, count in shards:
            settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, shard=shard, shards=count)
            addresses.append((await stack.enter_async_context(parameter_server(settings))).address)
        yield job_with(parameter_servers=tuple(addresses), **changes)


async def assert_empty(job: JobSpec, wrong: int) -> None:
    async with ServerClient(job.parameter_servers[wrong], job.table) as server:
        with pytest.raises(NotFound):
            await server.get_checkpoint()


@pytest.mark.parametrize(("shards", "wrong", "text"), MISTAKES.values(), ids=MISTAKES)
async def test_a_job_with_checkpoints_does_not_begin(
    dispatcher: Dispatcher, shards: list[tuple[int, int]], wrong: int, text: str
) -> None:
    async with job_on(shards, checkpoint_every=2) as job:
        with pytest.raises(FailedPrecondition, match=rf"{text} \(ESD_PS_SHARD, ESD_PS_SHARDS\).*--parameter-servers"):
            await dispatcher.client.create_job(job)
        await assert_empty(job, wrong)


@pytest.mark.parametrize(("shards", "wrong", "text"), MISTAKES.values(), ids=MISTAKES)
async def test_nor_do_workers_train_on_them(shards: list[tuple[int, int]], wrong: int, text: str) -> None:
    async with job_on(shards) as job, aclosing(ParameterServers(job, 0, Link(1e9, shape=False), WORKER)) as servers:
        with pytest.raises(FailedPrecondition, match=text):
            await servers.create_tables()
        await assert_empty(job, wrong)


async def test_one_server_under_two_names_is_not_two(dispatcher: Dispatcher) -> None:
    async with job_on([ALONE]) as alone:
        (address,) = alone.parameter_servers
        port = address.rpartition(":")[2]
        job = job_with(parameter_servers=(address, f"localhost:{port}"), checkpoint_every=2)
        with pytest.raises(FailedPrecondition, match="of 2, and it is shard 0 of 1"):
            await dispatcher.client.create_job(job)
