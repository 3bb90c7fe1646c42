"""Real parameter servers, workers as processes, and a dispatcher that replays given plans over real gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from esd.dispatcher.service.servicer import SERVICE, add_to_server
from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.worker_host import Process, WorkerHost
from esd.services.domain.claimants import new_claimant
from esd.services.domain.errors import EsdError, NotFound
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import FlushPlan, Membership, PlanMessage
from esd.services.domain.reports import FailureReport, FlushReport, IterationReport, Lease, Registration, Report
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.server import serve
from esd.services.runtime.settings import ServerSettings
from esd.services.runtime.tasks import run_in
from esd.services.runtime.threads import named_threads
from esd.services.wire.attend import Attendance, decode_request, encode_answer
from esd.services.wire.exchange import sequence_of
from esd.services.wire.reports import decode_registration, encode_lease
from esd.worker.service.app import take_part
from esd.worker.service.epoch import Training
from esd.worker.service.session import WorkerSession
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.trainer import model_of_job
from tests.integration.worker.small import worker_settings
from tests.support.plan_messages import message_of

READY_SECONDS = 110  # importing torch on a busy machine


@dataclass
class Service:
    """A started service."""

    process: Process
    log: Path
    address: str

    async def end(self, seconds: float = 110) -> tuple[int, str]:
        """Waits for the process to end; its exit code and standard error."""
        async with asyncio.timeout(seconds):
            return await self.process.wait(), _text(self.log)

    @classmethod
    async def ready(cls, process: Process, log: Path) -> Service:
        """Waits for the ready line."""
        assert process.stdout is not None
        async with asyncio.timeout(READY_SECONDS):
            line = await process.stdout.readline()
        assert line, _text(log)
        return cls(process, log, json.loads(line)["address"])


def _text(log: Path) -> str:
    return log.read_text()


StartProcess = Callable[..., Awaitable[Service]]


@pytest.fixture
async def start_process(tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Starts `python -m MODULE` with the given environment and waits for its ready line; kills it at the end."""
    started: list[asyncio.subprocess.Process] = []

    async def start(module: str, **environment: str) -> Service:
        log = tmp_path / f"{module}-{len(started)}.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module,
                env={**os.environ, **environment},
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )  # fmt: skip
        started.append(process)
        return await Service.ready(process, log)

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def start_servers() -> AsyncIterator[Callable[[int], Awaitable[tuple[str, ...]]]]:
    """Starts parameter servers with the memory store, in this process; their addresses in shard order."""
    async with AsyncExitStack() as stack:

        async def start(shards: int) -> tuple[str, ...]:
            each = [
                ParameterServerSettings(shard=shard, shards=shards, metrics_port=None, grace_seconds=0)
                for shard in range(shards)
            ]
            servers = [await stack.enter_async_context(parameter_server(settings)) for settings in each]
            return tuple(server.address for server in servers)

        yield start


@pytest.fixture
async def start_worker(tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Starts a worker that is to register with the dispatcher at an address; its host ends it at the end."""
    host = WorkerHost(tmp_path / "worker-host.log", READY_SECONDS)

    async def start(dispatcher: str, name: str = "worker", **environment: str) -> Service:
        log = tmp_path / f"{name}.log"
        settings = worker_settings(dispatcher, name) | environment
        with log.open("ab") as stderr:
            process = await host.start_worker((), {**os.environ, **settings}, stderr.fileno())
        return await Service.ready(process, log)

    yield start
    await host.close()


@dataclass
class ScriptedDispatcher(dispatcher_pb2_grpc.DispatcherServicer):
    """Gives slots in order of registration, and to each slot its script.

    A script is a list of plan messages, after which the stream stays open; an error in it is raised in its place. As
    with the real dispatcher, a message after a flush comes when all workers have confirmed the flush. Where rows go
    directly, workers get each other's real addresses; with `detour`, `reached_at`.
    """

    job: JobSpec
    scripts: Sequence[Sequence[PlanMessage | EsdError]]
    registrations: list[Registration] = field(default_factory=list)
    reports: list[list[Report]] = field(default_factory=list)
    failures: list[FailureReport] = field(default_factory=list)
    group_keys: dict[str, bytes] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    claimant: bytes = field(default_factory=new_claimant)
    detour: bool = False
    reached_at: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reports = [[] for _ in self.scripts]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)

    def flushed(self) -> bool:
        return all(reports and isinstance(reports[-1], FlushReport) for reports in self.reports)

    def iteration_reports(self, slot: int) -> list[IterationReport]:
        return [report for report in self.reports[slot] if isinstance(report, IterationReport)]

    async def RegisterWorker(self, request: pb.RegisterWorkerRequest, context: Any) -> pb.RegisterWorkerResponse:  # noqa: N802
        registration = decode_registration(request)
        if registration not in self.registrations:
            if len(self.registrations) == len(self.scripts):
                raise NotFound("no job takes workers")
            async with self.changed:
                self.registrations.append(registration)
                self.changed.notify_all()
        slot = self.registrations.index(registration)
        return encode_lease(Lease(str(slot), heartbeat_seconds=1.0))

    async def PutGroupKey(self, request: pb.PutGroupKeyRequest, context: Any) -> pb.PutGroupKeyResponse:  # noqa: N802
        async with self.changed:
            self.group_keys[request.key] = request.value
            self.changed.notify_all()
        return pb.PutGroupKeyResponse()

    async def GetGroupKey(self, request: pb.GetGroupKeyRequest, context: Any) -> pb.GetGroupKeyResponse:  # noqa: N802
        await self.until(lambda: request.key in self.group_keys)
        return pb.GetGroupKeyResponse(value=self.group_keys[request.key])

    async def Attend(self, request_iterator: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:  # noqa: N802
        requests = aiter(request_iterator)
        attendance = decode_request(await anext(requests))
        assert isinstance(attendance, Attendance)
        outbox: asyncio.Queue[bytes | EsdError] = asyncio.Queue()
        slot = int(attendance.lease_id)
        sides = [
            asyncio.create_task(self._take_in(slot, requests, outbox)),
            asyncio.create_task(self._tell(slot, attendance.from_iteration, outbox)),
        ]
        try:
            while not isinstance(message := await outbox.get(), EsdError):
                yield message
            raise message
        finally:
            for side in sides:
                side.cancel()

    async def _take_in(
        self, slot: int, requests: AsyncIterator[bytes], outbox: asyncio.Queue[bytes | EsdError]
    ) -> None:
        async for data in requests:
            said = decode_request(data)
            assert not isinstance(said, Attendance)
            outbox.put_nowait(encode_answer(sequence_of(data), []))
            async with self.changed:
                self.reports[slot] += [each for each in said if isinstance(each, IterationReport | FlushReport)]
                self.failures += [each for each in said if isinstance(each, FailureReport)]
                self.changed.notify_all()

    async def _tell(self, slot: int, start: int, outbox: asyncio.Queue[bytes | EsdError]) -> None:
        await self.until(lambda: len(self.registrations) == len(self.scripts))
        peers = await self._peers_of(slot) if self.job.sync.delivers else ()
        everyone = WorkerSet.all_of(self.job.workers)
        outbox.put_nowait(message_of(Membership(0, slot, self.job, everyone, peers=peers, claimant=self.claimant)))
        flushing = False
        for message in self.scripts[slot][start:]:
            if flushing:
                await self.until(self.flushed)
            flushing = isinstance(message, FlushPlan)
            outbox.put_nowait(message if isinstance(message, EsdError) else message_of(message))

    async def _peers_of(self, slot: int) -> tuple[str, ...]:
        await self.until(lambda: not self.detour or len(self.reached_at) == len(self.scripts))
        addresses = [self.reached_at.get(other, each.address) for other, each in enumerate(self.registrations)]
        return tuple("" if other == slot else address for other, address in enumerate(addresses))


class DispatcherSettings(ServerSettings, env_prefix="ESD_SCRIPTED_"):
    """Defaults of every service."""


@pytest.fixture
async def serve_scripts() -> AsyncIterator[Callable[..., Awaitable[tuple[ScriptedDispatcher, str]]]]:
    """Serves a scripted dispatcher; returns it and its address."""
    async with AsyncExitStack() as stack:

        async def start(
            job: JobSpec,
            scripts: Sequence[Sequence[PlanMessage | EsdError]],
            kind: type[ScriptedDispatcher] = ScriptedDispatcher,
        ) -> tuple[ScriptedDispatcher, str]:
            dispatcher = kind(job, scripts)
            services = [(add_to_server, dispatcher, SERVICE)]
            settings = DispatcherSettings(metrics_port=None, grace_seconds=0)
            server = await stack.enter_async_context(serve("dispatcher", services, settings))
            return dispatcher, server.address

        yield start


@pytest.fixture
def run_worker_job() -> Callable[..., Awaitable[None]]:
    """Runs a worker in this process: for jobs of one worker whose end is an error."""

    async def run(dispatcher: str, **changes: Any) -> None:
        defaults = {"name": "worker", "dispatcher": dispatcher, "link": 1e9, "cache_rows": 64}
        settings = WorkerSettings(**(defaults | changes))
        session = WorkerSession(settings, Training(model_of_job, torch.device(settings.device)))
        with named_threads("train") as thread:
            try:
                await run_in(thread, take_part, session, settings)
            finally:  # of a test that cancels it, too
                await asyncio.to_thread(session.close)

    return run
