"""A TCP proxy that keeps all that passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.support.tcp_server import tcp_server


class ListeningProxy:
    """Forwards bytes to one address.

    Attributes:
        address: `host:port` to connect to.
    """

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._heard: list[bytearray] = []  # of each connection and direction
        self.address = ""

    def found(self, patterns: Sequence[bytes]) -> int:
        """Counts the patterns that have passed, each as a whole in one read of a connection."""
        everything = b"".join(self._heard)
        return sum(pattern in everything for pattern in patterns)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, there_writer))
            tasks.create_task(self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self._heard.append(heard)
        try:
            while data := await reader.read(65536):
                heard += data
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # an end of the connection has ended
        finally:
            writer.close()


@asynccontextmanager
async def listening_proxy(target: str) -> AsyncIterator[ListeningProxy]:
    """Runs a proxy to `target` on a free port."""
    proxy = ListeningProxy(target)
    async with tcp_server(proxy.forward) as port:
        proxy.address = f"127.0.0.1:{port}"
        yield proxy
