"""The examples of docs/clients.md and the README run as shown, and the example worker takes part in a job."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

import esd
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.protos import dispatcher_pb2
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from tests.support.certificates import Certificates
from tests.support.simple_clients import job_with, samples, state_when

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    """The Python that a page shows."""
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


PAGE = (ROOT / "docs" / "clients.md").read_text()
BLOCKS = blocks(PAGE)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serve_dispatcher(DispatcherSettings(metrics_port=None, grace_seconds=1.0)) as served:
        yield served.address


async def run(code: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return said.decode()


async def test_the_first_example(address: str) -> None:
    code = BLOCKS[0]
    assert "127.0.0.1:50051" in code
    assert "dual" in await run(code.replace("127.0.0.1:50051", address))


async def test_the_example_of_the_readme(address: str) -> None:
    (code,) = blocks((ROOT / "README.md").read_text())
    assert "127.0.0.1:50051" in code
    assert await run(code.replace("127.0.0.1:50051", address)) == "[0 0 1]\nNone\n"


async def test_the_example_with_tls_and_token(certificates: Certificates) -> None:
    settings = DispatcherSettings(metrics_port=None, grace_seconds=1.0, **certificates.of("service", token=True))
    async with serve_dispatcher(settings) as served:
        (code,) = (block for block in BLOCKS if "Credentials.load" in block)
        for shown, real in (
            ("dispatcher:50051", served.address),
            ("certs/client/ca.crt", str(certificates.authority)),
            ("certs/client/token", str(certificates.token)),
        ):
            assert shown in code
            code = code.replace(shown, real)
        assert await run(code) == "None\n"


def test_the_table_has_every_method_of_the_client() -> None:
    table, _, _ = PAGE.partition("| method of `DispatcherClient` |")[2].partition("\n\n")
    shown = {name for row in table.splitlines() for name in re.findall(r"`(\w+)\(", row)}
    assert shown == {name for name in vars(esd.DispatcherClient) if not name.startswith("_")} - {"close"}


def test_the_calls_shown_for_grpcurl_are_in_the_contract() -> None:
    calls = re.findall(r"esd\.v1\.(\w+)[./](\w+)", PAGE)
    assert len(calls) >= 5
    for service, call in calls:
        assert call in dispatcher_pb2.DESCRIPTOR.services_by_name[service].methods_by_name


def test_solved_here_and_by_a_dispatcher_it_is_the_same() -> None:
    costs = np.array([[1, 5], [2, 9]], np.int32)
    result = esd.hybrid_dis(costs, [1, 1])
    assert (result.assignment.tolist(), result.cost, result.gap) == ([1, 0], 7, 0)
    assert esd.hybrid_dis(costs, [1, 1], alpha=0.0).solver == "none"
    with pytest.raises(esd.errors.InvalidArgument, match="quick"):
        esd.hybrid_dis(costs, [1, 1], solver="quick")


StartWorker = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def own_worker(address: str) -> AsyncIterator[StartWorker]:
    """Starts workers of one's own, and kills those that are left."""
    started: list[asyncio.subprocess.Process] = []

    async def start(name: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "examples.own_worker", address, name)
        started.append(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE))
        return started[-1]

    yield start
    for worker in started:
        if worker.returncode is None:
            worker.kill()
            await worker.communicate()


async def test_workers_of_ones_own_take_part_in_a_job(address: str, own_worker: StartWorker) -> None:
    job = job_with(workers=2)
    workers = [await own_worker(name) for name in ("edge-0", "edge-1")]
    async with esd.AsyncDispatcherClient(address) as client:
        await client.create_job(job)
        await client.submit(job.name, [samples(8, seed=seed) for seed in range(3)])
        for worker in workers:
            said, _ = await worker.communicate()
            assert (worker.returncode, said) == (0, b"3 iterations\n")
        state = await client.describe()
    assert state is not None
    assert (state.phase, state.iterations_confirmed) == (esd.JobPhase.FINISHED, 3)


async def test_they_take_checkpoints_and_go_on_when_one_of_them_is_killed(
    address: str, own_worker: StartWorker
) -> None:
    may_go_on = asyncio.Event()

    async def source() -> AsyncIterator[esd.SampleBatch]:
        for seed in range(3):
            yield samples(8, seed=seed)
        await may_go_on.wait()
        yield samples(8, seed=3)

    servers = ParameterServerSettings(metrics_port=None, grace_seconds=0)
    async with parameter_server(servers) as server, esd.AsyncDispatcherClient(address) as client:
        job = job_with(workers=2, checkpoint_every=2, parameter_servers=(server.address,))
        await client.create_job(job)
        first, killed = [await own_worker(name) for name in ("edge-0", "edge-1")]
        submission = asyncio.create_task(client.submit(job.name, source()))
        await state_when(client, lambda state: (state.checkpoint, state.iterations_confirmed) == (2, 3))
        killed.kill()
        await killed.communicate()
        second = await own_worker("edge-1")
        await state_when(client, lambda state: len(state.recoveries) == 1 and state.iterations_confirmed == 3)
        may_go_on.set()
        assert await submission == 32
        for worker in (first, second):
            said, _ = await worker.communicate()
            assert (worker.returncode, said) == (0, b"4 iterations\n")
        state = await client.describe()
    assert state is not None
    assert (state.phase, state.checkpoint) == (esd.JobPhase.FINISHED, 4)
    assert [recovery.iterations_redone for recovery in state.recoveries] == [1]
