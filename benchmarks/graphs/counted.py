"""A TCP proxy that counts bytes."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

_READ = 1 << 16


class CountingProxy:
    """Forwards every connection to one address while its `with` block runs.

    Attributes:
        towards: bytes that went to that address.
        back: bytes that came from it.
    """

    def __init__(self) -> None:
        self.towards = 0
        self.back = 0
        self._target = ("", 0)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def reach(self, _whose: str, address: str) -> str:
        """Returns the address by which this one is reached through the proxy."""
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        assert self._server is not None  # noqa: S101 - the block runs
        return "{}:{}".format(*self._server.sockets[0].getsockname())

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None  # noqa: S101 - it was entered
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None  # noqa: S101 - a server calls in a task
        self._connections.add(own)
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(
                self._pump(reader, there_writer, out=True), self._pump(there_reader, writer, out=False)
            )
        finally:
            self._connections.discard(own)
            for each in (writer, there_writer):
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, out: bool) -> None:
        with contextlib.suppress(ConnectionError):  # an end that is killed
            while data := await reader.read(_READ):
                if out:
                    self.towards += len(data)
                else:
                    self.back += len(data)
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(ConnectionError, OSError):
            writer.write_eof()
