"""A toy service on the contract's stubs, with calls of all four kinds; the name in a request says how it behaves."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from esd.protos import dispatcher_pb2, dispatcher_pb2_grpc, ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import Unavailable
from esd.services.runtime import status
from esd.services.runtime.channel import channel
from esd.services.runtime.server import Server, serve
from esd.services.runtime.settings import ServerSettings


class ToySettings(ServerSettings, env_prefix="ESD_TOY_"):
    """Defaults of every service."""


class ToyServicer(ps_pb2_grpc.ParameterServerServicer, dispatcher_pb2_grpc.DispatcherServicer):
    """One call of each kind.

    Names of tables and jobs: the name of a domain error raises it; `defect` raises a ValueError; `wait` waits until
    `released` (`waiting` is set meanwhile); `given up` awaits a task that is cancelled; `recovers` is unavailable
    twice; `big` answers with 100,000 bytes.
    """

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()
        self.deadlines: list[float] = []  # of calls of CreateTable, by the monotonic clock
        self.waiting = asyncio.Event()
        self.released = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def behave(self, name: str) -> None:
        self.attempts[name] += 1
        if name == "wait":
            self.waiting.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if name == "given up":
            work = asyncio.create_task(self.released.wait())
            asyncio.get_running_loop().call_soon(work.cancel)
            await work
        if name == "recovers" and self.attempts[name] < 3:
            raise Unavailable("Redis is restarting")
        if name == "defect":
            raise ValueError("password is hunter2")
        for cls in status.CODES:
            if name == cls.__name__:
                raise cls("rows is 0, the limit is 5")

    async def CreateTable(  # noqa: N802 - the names are the contract's
        self, request: ps_pb2.CreateTableRequest, context: Any
    ) -> ps_pb2.CreateTableResponse:
        self.deadlines.append(time.monotonic() + context.time_remaining())
        await self.behave(request.table.name)
        return ps_pb2.CreateTableResponse(created=True)

    async def Scan(  # noqa: N802
        self, request: ps_pb2.ScanRequest, context: Any
    ) -> AsyncIterator[ps_pb2.ScanResponse]:
        yield ps_pb2.ScanResponse(rows={"rows": bytes(2_200_000 if request.table == "big" else 4)})
        await self.behave(request.table)
        yield ps_pb2.ScanResponse(rows={"rows": bytes(8)})

    async def PutDense(  # noqa: N802
        self, requests: AsyncIterator[ps_pb2.PutDenseRequest], context: Any
    ) -> ps_pb2.PutDenseResponse:
        stored = 0
        async for chunk in requests:
            await self.behave(chunk.table)
            stored += 1
        return ps_pb2.PutDenseResponse(bytes=stored)

    async def Submit(  # noqa: N802
        self, requests: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Any
    ) -> AsyncIterator[dispatcher_pb2.SubmitResponse]:
        async for request in requests:
            await self.behave(request.job)
            yield dispatcher_pb2.SubmitResponse(samples=1)


class Toy:
    """A served toy with a client's stub; `stop` leaves the server's block early, before the client's."""

    def __init__(
        self,
        server: Server,
        stop: Callable[[], Awaitable[None]],
        servicer: ToyServicer,
        to_server: grpc.aio.Channel,
    ) -> None:
        self.server = server
        self.stop = stop
        self.servicer = servicer
        self.stub = ps_pb2_grpc.ParameterServerStub(to_server)
        self.dispatcher_stub = dispatcher_pb2_grpc.DispatcherStub(to_server)

    async def create(self, name: str, seconds: float = 60) -> ps_pb2.CreateTableResponse:
        with status.domain_errors():
            return await self.stub.CreateTable(ps_pb2.CreateTableRequest(table={"name": name}), timeout=seconds)

    async def pull(self, name: str, seconds: float = 60) -> list[int]:
        """Bytes of the received rows, message by message."""
        with status.domain_errors():
            responses = self.stub.Scan(ps_pb2.ScanRequest(table=name), timeout=seconds)
            return [len(response.rows.rows) async for response in responses]

    async def push(self, *names: str, seconds: float = 60) -> int:
        with status.domain_errors():
            answer = await self.stub.PutDense((ps_pb2.PutDenseRequest(table=name) for name in names), timeout=seconds)
        return int(answer.bytes)

    async def submit(self, *names: str, seconds: float = 60) -> int:
        """Submits messages with these names, and returns the number of answers."""
        requests = (dispatcher_pb2.SubmitRequest(job=name) for name in names)
        with status.domain_errors():
            return len([answer async for answer in self.dispatcher_stub.Submit(requests, timeout=seconds)])


ServeToy = Callable[..., AbstractAsyncContextManager[Toy]]


@pytest.fixture
def serve_toy() -> ServeToy:
    """Serves a toy with the given settings: `async with serve_toy(max_concurrent_rpcs=2) as toy`."""

    @asynccontextmanager
    async def serve_one(**settings: Any) -> AsyncIterator[Toy]:
        servicer = ToyServicer()
        services = [
            (ps_pb2_grpc.add_ParameterServerServicer_to_server, servicer, "esd.v1.ParameterServer"),
            (dispatcher_pb2_grpc.add_DispatcherServicer_to_server, servicer, "esd.v1.Dispatcher"),
        ]
        async with AsyncExitStack() as serving:
            server = await serving.enter_async_context(
                serve("toy", services, ToySettings(**{"metrics_port": None} | settings))
            )
            async with channel(server.address) as to_server:
                yield Toy(server, serving.aclose, servicer, to_server)

    return serve_one


@pytest.fixture
async def toy(serve_toy: ServeToy) -> AsyncIterator[Toy]:
    """A toy with default settings."""
    async with serve_toy() as served:
        yield served
