"""A TCP proxy whose connections can be cut, as a flaky link would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from tests.support.tcp_server import tcp_server


class CuttableProxy:
    """Forwards bytes to one address until it is cut.

    Attributes:
        address: `host:port` to connect to.
        cuts: how often `cut_after` has cut.
    """

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._connections: set[asyncio.StreamWriter] = set()
        self._open = True
        self._passing = asyncio.Event()
        self._passing.set()
        self._left: int | None = None  # bytes that pass before the next cut
        self._again: Callable[[], int] | None = None
        self.address = ""
        self.cuts = 0

    def cut(self) -> None:
        """Resets all connections; new ones are let through."""
        for writer in self._connections:
            writer.transport.abort()

    def cut_after(self, size: int | None, again: Callable[[], int] | None = None) -> None:
        """Resets all connections when so many bytes more have passed, in both directions together; None: does not.

        `again` says how many bytes pass from each cut to the next.
        """
        self._left = size
        self._again = again

    async def cut_for(self, seconds: float) -> None:
        """Resets all connections, and new ones as soon as they are made, for so long."""
        self.refuse()
        await asyncio.sleep(seconds)
        self.admit()

    def refuse(self) -> None:
        """Resets all connections, and from now on new ones as soon as they are made."""
        self._open = False
        self.cut()

    def admit(self) -> None:
        """Lets new connections through again."""
        self._open = True

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Lets nothing pass inside the block, without an error: packets are lost, and sent again after it."""
        self._passing.clear()
        try:
            yield
        finally:
            self._passing.set()

    async def hold_for(self, seconds: float) -> None:
        """Lets nothing pass for so long."""
        with self.holding():
            await asyncio.sleep(seconds)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection."""
        if not self._open:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:  # no server listens there now
            writer.transport.abort()
            return
        pair = {writer, there_writer}
        self._connections |= pair
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, there_writer))
                tasks.create_task(self._pump(there_reader, writer))
        finally:
            self._connections -= pair

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._passing.wait()
                last = self._left is not None and len(data) >= self._left
                writer.write(data[: self._left])
                await writer.drain()
                if last:
                    self._left = self._again() if self._again else None
                    self.cuts += 1
                    self.cut()
                elif self._left is not None:
                    self._left -= len(data)
        except ConnectionError:
            pass  # cut
        finally:
            writer.close()


@asynccontextmanager
async def cuttable_proxy(target: str) -> AsyncIterator[CuttableProxy]:
    """Runs a proxy to `target` on a free port."""
    proxy = CuttableProxy(target)
    async with tcp_server(proxy.forward) as port:
        proxy.address = f"127.0.0.1:{port}"
        try:
            yield proxy
        finally:
            proxy.refuse()
