"""A TCP proxy whose connections a test can cut, as a flaky link would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttableProxy:
    """Forwards bytes to one address until it is cut.

    Attributes:
        address: `host:port` to connect to.
    """

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._connections: set[asyncio.StreamWriter] = set()
        self.address = ""

    def cut(self) -> None:
        """Resets all connections; new ones are let through."""
        for writer in self._connections:
            writer.transport.abort()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        pair = {writer, there_writer}
        self._connections |= pair
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, there_writer))
                tasks.create_task(_pump(there_reader, writer))
        finally:
            self._connections -= pair


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # cut
    finally:
        writer.close()


@asynccontextmanager
async def cuttable_proxy(target: str) -> AsyncIterator[CuttableProxy]:
    """Runs a proxy to `target` on a free port."""
    proxy = CuttableProxy(target)
    server = await asyncio.start_server(proxy.forward, "127.0.0.1", 0)
    proxy.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
    async with server:
        yield proxy
        proxy.cut()
