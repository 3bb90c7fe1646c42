"""`python -m esd.dispatcher`, the real process: ready line, health, a whole job, metrics, SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.plans import Membership
from esd.services.domain.state import JobPhase
from esd.services.runtime.channel import channel
from tests.support.simple_clients import JOB, Dispatcher, Worker, run_to_the_end, samples, stream

pytestmark = pytest.mark.usefixtures("cold_python")


@asynccontextmanager
async def process(**settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}
    environment |= {f"ESD_DISPATCHER_{name.upper()}": value for name, value in settings.items()}
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esd.dispatcher",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.communicate()


async def test_life_of_the_process() -> None:
    async with process() as running:
        ready = json.loads(await running.stdout.readline())
        assert (ready["event"], ready["service"]) == ("ready", "dispatcher")
        async with channel(ready["address"]) as open_channel:
            health = health_pb2_grpc.HealthStub(open_channel)
            status = await health.Check(health_pb2.HealthCheckRequest(service="esd.v1.Dispatcher"))
        assert status.status == health_pb2.HealthCheckResponse.SERVING
        async with AsyncDispatcherClient(ready["address"]) as client:
            dispatcher = Dispatcher(ready["address"], client, asyncio.Event().wait)
            await run_to_the_end(dispatcher, JOB, [samples(20)])
            state = await client.describe()
            page = await asyncio.to_thread(read, f"http://{ready['metrics']}/metrics")
        assert state.phase is JobPhase.FINISHED
        moved = state.workers[1].transfers
        assert f'esd_embedding_transfers_total{{op="miss_pull",worker="1"}} {float(moved.miss_pull)}' in page
        assert f'esd_cache_lookups_total{{result="hit",table="embeddings"}} {float(state.hits)}' in page
        assert "esd_iterations_total 3.0" in page
        assert 'esd_auc{label="label"} 0.5' in page

        running.send_signal(signal.SIGTERM)
        _, logs = await running.communicate()
    assert running.returncode == 0
    assert all(json.loads(line)["message"] for line in logs.splitlines())


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


async def test_sigterm_while_everyone_waits() -> None:
    """Open streams do not hold the process up: it stops long before its grace period ends."""
    async with process(grace_seconds="100") as running:
        ready = json.loads(await running.stdout.readline())
        async with AsyncDispatcherClient(ready["address"]) as client:
            await client.create_job(JOB)
            worker, other = Worker(client, "edge-0"), Worker(client, "edge-1")
            await worker.register()
            await other.register()
            submit = asyncio.create_task(client.submit(JOB.name, stream([samples(8)] * 100)))
            async for message in worker.watch():
                if isinstance(message, Membership):
                    break
            watching = asyncio.create_task(worker.train())
            running.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                _, logs = await running.communicate()
            for task in (submit, watching):
                task.cancel()
            await asyncio.gather(submit, watching, return_exceptions=True)
    assert running.returncode == 0
    assert b"ERROR" not in logs.upper().replace(b'"LEVEL": "INFO"', b"")


async def test_wrong_settings_are_all_named() -> None:
    async with process(lease_seconds="-1", queued_batches="none", leese="5") as running:
        _, logs = await running.communicate()
    assert running.returncode == 2
    for mistake in (
        b"ESD_DISPATCHER_LEASE_SECONDS=-1",
        b"ESD_DISPATCHER_QUEUED_BATCHES=none",
        b"ESD_DISPATCHER_LEESE: no such setting",
    ):
        assert mistake in logs
