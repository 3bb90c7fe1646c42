"""A TCP proxy: its connections, and the bytes that pass in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from tests.support.tcp_server import tcp_server


class TcpProxy:
    """Forwards bytes to one address.

    Attributes:
        address: `host:port` to connect to.
    """

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self.connections: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}  # to the client, to the server
        self.address = ""

    @classmethod
    @asynccontextmanager
    async def running(cls, target: str) -> AsyncIterator[Self]:
        """Runs a proxy to `target` on a free port."""
        proxy = cls(target)
        async with tcp_server(proxy.forward) as port:
            proxy.address = f"127.0.0.1:{port}"
            try:
                yield proxy
            finally:
                proxy.end()

    def end(self) -> None:
        """Ends anything that outlives its connection."""

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection."""
        try:
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:  # no server listens there now
            writer.transport.abort()
            return
        self.connections[writer] = there_writer
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, there_writer))
                tasks.create_task(self._pump(there_reader, writer))
        finally:
            del self.connections[writer]

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Passes bytes on to an end of a connection; the other end has sent them."""
        writer.write(data)
        await writer.drain()

    def close(self, writer: asyncio.StreamWriter) -> None:
        """Closes an end of a connection whose other end has closed."""
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self.pass_on(data, writer)
        except ConnectionError:
            pass  # an end of the connection has ended
        finally:
            self.close(writer)
