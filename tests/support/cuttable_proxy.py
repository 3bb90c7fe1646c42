"""A TCP proxy whose connections can be cut, as a flaky link would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.tcp_proxy import TcpProxy


class CuttableProxy(TcpProxy):
    """Forwards bytes to one address until it is cut.

    Attributes:
        cuts: how often `cut_after` has cut.
        deserted: the ends of connections whose servers do not know that their clients have gone.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._open = True
        self._passing = asyncio.Event()
        self._passing.set()
        self._left: int | None = None  # bytes that pass before the next cut
        self._again: Callable[[], int] | None = None
        self.deserted: set[asyncio.StreamWriter] = set()  # to the server
        self.cuts = 0

    def cut(self) -> None:
        """Resets all connections; new ones are let through."""
        for pair in self.connections.items():
            for writer in pair:
                writer.transport.abort()

    def desert(self) -> None:
        """Resets the clients' ends of all connections, of which the server hears nothing; new ones are let through."""
        self.deserted.update(self.connections.values())
        for writer in self.connections:
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

    def end(self) -> None:
        """Resets all connections, those whose clients have deserted them, too."""
        self.refuse()
        for writer in self.deserted:
            writer.transport.abort()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one connection, unless they are refused now."""
        if self._open:
            await super().forward(reader, writer)
        else:
            writer.transport.abort()

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Passes bytes on as far as they come before the next cut."""
        await self._passing.wait()
        last = self._left is not None and len(data) >= self._left
        await super().pass_on(data[: self._left], writer)
        if last:
            self._left = self._again() if self._again else None
            self.cuts += 1
            self.cut()
        elif self._left is not None:
            self._left -= len(data)

    def close(self, writer: asyncio.StreamWriter) -> None:
        """Closes an end, unless it is the server's, whose client has deserted it without a word."""
        if writer not in self.deserted:
            super().close(writer)
