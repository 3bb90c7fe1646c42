"""The link that a client's messages pass on their way to a server and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from esd.services.wire.rows import CHUNK_BYTES


class Traffic:
    """A link without a limit: messages pass at once. A worker's link is a subclass with a speed, which measures pushes.

    Attributes:
        chunk_bytes: payload of one message, in either direction; a longer payload travels in several messages, so that
            an urgent message never waits long.
        joined_bytes: short messages travel as one up to this size, which takes the link a few milliseconds.
    """

    chunk_bytes: int = CHUNK_BYTES
    joined_bytes: int = CHUNK_BYTES

    def up(self, size: int) -> float:  # noqa: ARG002 - bytes take no time here
        """Accounts for a message of `size` bytes to a server; returns the seconds until it may be sent."""
        return 0.0

    def down(self, size: int) -> float:  # noqa: ARG002
        """Accounts for a message of `size` bytes from a server; returns the seconds until it counts as arrived."""
        return 0.0

    def sent(self, **sizes: int) -> None:
        """Counts a message that leaves, by the kinds of its bytes (LINK_KINDS)."""

    def received(self, **sizes: int) -> None:
        """Counts a message that has arrived, likewise."""

    async def send(self, size: int) -> None:
        """Returns when a message of `size` bytes may be sent."""
        await _passed(self.up(size))

    async def receive(self, size: int) -> None:
        """Returns when a message of `size` bytes counts as arrived."""
        await _passed(self.down(size))

    async def send_in_parts(self, size: int) -> None:
        """Returns when a message of any size may be sent. Other messages may leave between its parts."""
        for part in self._parts(size):
            await self.send(part)

    async def receive_in_parts(self, size: int) -> None:
        """Returns when a message of any size counts as arrived. Other messages may arrive between its parts."""
        for part in self._parts(size):
            await self.receive(part)

    def push_begins(self) -> None:
        """Records that a push begins; pushes may overlap."""

    def push_ends(self, size: int) -> None:
        """Records that a push of `size` bytes is durable, or has failed."""

    def deadline(self, size: int, timeout: float) -> float:  # noqa: ARG002
        """Returns the deadline of a call that moves `size` bytes and may wait for another `timeout` seconds."""
        return timeout

    def _parts(self, size: int) -> Iterator[int]:
        for start in range(0, size, self.chunk_bytes):
            yield min(self.chunk_bytes, size - start)


async def _passed(wait: float) -> None:
    if wait > 0:
        await asyncio.sleep(wait)
