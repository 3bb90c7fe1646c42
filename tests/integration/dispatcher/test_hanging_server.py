"""A parameter server that hangs for longer than a call may take, and one that gives calls up when it wakes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest

from esd.dispatcher.service.checkpoint import servers
from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.dispatcher.service.settings import DispatcherSettings
from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import DeadlineExceeded, ResourceExhausted
from tests.support.simple_clients import Dispatcher, job_with, samples, stream

SETTINGS = DispatcherSettings(recovery_seconds=240.0, metrics_port=None)
SAMPLES = LogEntry(0, 3, b"three samples")


@asynccontextmanager
async def parameter_server_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A real process, which a signal can stop; its address."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.ps_server", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(await process.stdout.readline())["address"]
    finally:
        process.kill()
        await process.wait()


async def test_samples_are_logged_once_by_a_server_that_hung_for_longer_than_a_call_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "_CALL_SECONDS", 0.5)
    async with parameter_server_process() as (process, address):
        store = CheckpointStore(job_with(checkpoint_every=5, parameter_servers=(address,)), SETTINGS)
        async with aclosing(_Closing(store)):
            await store.find()
            await store.restore(0, 1)
            process.send_signal(signal.SIGSTOP)
            logging = asyncio.create_task(store.append_samples(SAMPLES, 1))
            asked = asyncio.create_task(store.committed())
            done, _ = await asyncio.wait({logging, asked}, timeout=1.5)  # three deadlines
            process.send_signal(signal.SIGCONT)
            assert not done
            await logging
            with pytest.raises(Exception, match="has lost table"):  # there is no manifest: an answer, and no deadline
                await asked
            assert await store.read_samples(1) == [SAMPLES]


@pytest.mark.parametrize(
    "call", ["put_part", "committed"], ids=["while a checkpoint is committed", "while the job goes back to one"]
)
async def test_a_dispatcher_stops_beside_a_server_that_hangs(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    dispatcher, asked = await start_dispatcher(grace_seconds=0.5), asyncio.Event()
    async with parameter_server_process() as (process, address):
        made = getattr(CheckpointStore, call)

        async def hangs(*arguments: Any) -> Any:
            process.send_signal(signal.SIGSTOP)
            asked.set()
            return await made(*arguments)

        monkeypatch.setattr(CheckpointStore, call, hangs)
        job = job_with(checkpoint_every=2, parameter_servers=(address,), workers=1)
        await dispatcher.client.create_job(job)
        batches = [samples(8, seed=seed) for seed in range(3)]
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(dispatcher.worker("edge-0").train()),
            asyncio.create_task(dispatcher.client.submit(job.name, stream(batches))),
        ]
        await asyncio.wait_for(asked.wait(), 60)
        stopping = asyncio.create_task(dispatcher.stop())
        stopped, _ = await asyncio.wait([stopping], timeout=30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert stopped


class _Closing:
    """Gives a store the name of the method that `aclosing` calls."""

    def __init__(self, store: CheckpointStore) -> None:
        self.aclose = store.close


class _Refusing(ps_pb2_grpc.ParameterServerServicer):
    """Answers the first attempts with a status of its own."""

    def __init__(self, *codes: grpc.StatusCode) -> None:
        self.codes = list(codes)

    async def AppendSamples(self, request: Any, context: Any) -> ps_pb2.AppendSamplesResponse:  # noqa: N802
        if self.codes:
            await context.abort(self.codes.pop(0))
        return ps_pb2.AppendSamplesResponse()


@asynccontextmanager
async def serving(
    servicer: ps_pb2_grpc.ParameterServerServicer, settings: DispatcherSettings = SETTINGS, **options: int
) -> AsyncIterator[CheckpointStore]:
    server = grpc.aio.server(options=list(options.items()))
    ps_pb2_grpc.add_ParameterServerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    store = CheckpointStore(job_with(checkpoint_every=5, parameter_servers=(f"127.0.0.1:{port}",)), settings)
    try:
        yield store
    finally:
        await store.close()
        await server.stop(None)


async def test_a_call_that_a_server_gives_up_is_made_again() -> None:
    passing = grpc.StatusCode.CANCELLED, grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED
    async with serving(_Refusing(*passing, grpc.StatusCode.DEADLINE_EXCEEDED)) as store:
        await store.append_samples(SAMPLES, 1)


class _Loading(ps_pb2_grpc.ParameterServerServicer):
    """Has a table of some rows, and takes no samples for a second."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._loaded: float | None = None

    async def CreateTable(self, request: Any, context: Any) -> ps_pb2.CreateTableResponse:  # noqa: N802
        return ps_pb2.CreateTableResponse()

    async def GetCheckpoint(self, request: Any, context: Any) -> ps_pb2.GetCheckpointResponse:  # noqa: N802
        return ps_pb2.GetCheckpointResponse(rows=self._rows)

    async def AppendSamples(self, request: Any, context: Any) -> ps_pb2.AppendSamplesResponse:  # noqa: N802
        self._loaded = self._loaded or time.monotonic() + 1
        if time.monotonic() < self._loaded:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED)  # which gRPC does not repeat by itself
        return ps_pb2.AppendSamplesResponse()


@pytest.mark.parametrize("seconds_of_rows", [0, 30])
async def test_a_server_may_be_away_the_longer_the_more_rows_it_loads(seconds_of_rows: int) -> None:
    job = job_with(checkpoint_every=5, parameter_servers=("127.0.0.1:1",))
    rows = seconds_of_rows * 8 * 2**20 // job.table.row_bytes
    async with serving(_Loading(rows), SETTINGS.model_copy(update={"recovery_seconds": 0.2})) as store:
        await store.find()
        if rows:
            await store.append_samples(SAMPLES, 1)
        else:
            with pytest.raises(DeadlineExceeded):
                await store.append_samples(SAMPLES, 1)


async def test_a_message_that_is_too_large_is_refused_at_once_and_by_name() -> None:
    async with serving(_Refusing(), **{"grpc.max_receive_message_length": 1000}) as store:
        with pytest.raises(ResourceExhausted, match="max_request_bytes"):
            async with asyncio.timeout(60):  # less than the store would try again for
                await store.append_samples(LogEntry(0, 3, bytes(2000)), 1)
