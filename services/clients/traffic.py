"""What a client's messages pass on their way to a server and back."""

from __future__ import annotations

import asyncio

from esd.services.wire.rows import CHUNK_BYTES


class Traffic:
    """Lets messages pass at once. A worker's link is another `Traffic`, which has a speed and measures pushes.

    Attributes:
        chunk_bytes: payload of one message, either way: what is longer travels as several, so that nothing urgent
            waits for long behind it.
    """

    chunk_bytes: int = CHUNK_BYTES

    def up(self, size: int) -> float:  # noqa: ARG002 - bytes take no time here
        """Takes a message of `size` bytes on its way to a server; returns the seconds until it may be sent."""
        return 0.0

    def down(self, size: int) -> float:  # noqa: ARG002
        """Takes a message of `size` bytes that a server has sent; returns the seconds until it may have arrived."""
        return 0.0

    async def send(self, size: int) -> None:
        """Returns when a message of `size` bytes may be sent."""
        await _passed(self.up(size))

    async def receive(self, size: int) -> None:
        """Returns when a message of `size` bytes may have arrived."""
        await _passed(self.down(size))

    def push_begins(self) -> None:
        """A push is under way from now on; pushes may overlap."""

    def push_ends(self, size: int) -> None:
        """A push whose messages had `size` bytes is durable, or has failed."""

    def deadline(self, size: int, timeout: float) -> float:  # noqa: ARG002
        """Returns the seconds to allow for what moves `size` bytes and may wait for `timeout` seconds besides."""
        return timeout


async def _passed(wait: float) -> None:
    if wait > 0:
        await asyncio.sleep(wait)
