"""A parameter server whose answers to frames are written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from esd.protos import ps_pb2
from tests.support.frames import SPEC
from tests.support.server_client import ServerClient

Response = ps_pb2.ExchangeResponse


class ScriptedExchange:
    """One server, which accepts frames and gives the answers of a test.

    Attributes:
        frames: the frames that have come and were not taken, over all streams.
        streams: number of opened streams.
        ended: released by each ended stream.
        silent: new streams get no credit.
    """

    def __init__(self, frames: int, size: int) -> None:
        self.frames: asyncio.Queue[ps_pb2.ExchangeRequest] = asyncio.Queue()
        self.streams = 0
        self.ended = asyncio.Semaphore(0)
        self.silent = False
        self._credit = ps_pb2.Credit(frames=frames, bytes=size)
        self._context: Any = None

    async def serve(self, requests: AsyncIterator[ps_pb2.ExchangeRequest], context: Any) -> None:
        self.streams += 1
        self._context = context
        try:
            if not self.silent:
                await context.write(Response(credit=self._credit))
            while (frame := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                self.frames.put_nowait(frame)
        finally:
            self.ended.release()

    async def frame(self) -> ps_pb2.ExchangeRequest:
        """The next frame."""
        return await asyncio.wait_for(self.frames.get(), 60)

    async def answer(self, *answers: Response) -> None:
        """Answers on the stream that was opened last."""
        for answer in answers:
            await self._context.write(answer)

    async def break_off(self, code: grpc.StatusCode, details: str = "") -> None:
        """Ends the stream that was opened last."""
        with suppress(grpc.aio.AbortError):
            await self._context.abort(code, details)


@asynccontextmanager
async def scripted_exchange(
    *, frames: int = 8, size: int = 2**20, silence: float = 60, **options: Any
) -> AsyncIterator[tuple[ScriptedExchange, ServerClient]]:
    """Such a server, which grants this credit, and a client of it."""
    script = ScriptedExchange(frames, size)
    handler = grpc.stream_stream_rpc_method_handler(
        script.serve, ps_pb2.ExchangeRequest.FromString, Response.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("esd.v1.ParameterServer", {"Exchange": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with ServerClient(f"127.0.0.1:{port}", SPEC, timeout=silence, **options) as client:
            yield script, client
    finally:
        await server.stop(None)
