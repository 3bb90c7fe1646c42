"""The worker's link to the parameter servers."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager

from services.clients.parameter_server import Traffic
from services.wire.rows import CHUNK_BYTES
from worker.core.bandwidth import LinkMeter, TokenBucket

_SMALLEST_CHUNK = 2**14  # bytes
_CHUNK_SECONDS = 0.05  # on a slow link, what moves at once should not hold up the rest for longer
_BURST_SECONDS = 0.02  # makes good for late wake-ups of the event loop
_LEAST_TO_MEASURE = 0.05  # seconds of full speed; with less, what is measured is the server's delay


class Link(Traffic):
    """Both directions of one link, shared by all parameter-server traffic of the worker.

    Attributes:
        uplink: measures pushes. (A pull's time says little: it may wait for another worker's push.)
    """

    def __init__(self, speed: float, *, shape: bool) -> None:
        """Opens the link.

        Args:
            speed: bytes per second, in each direction.
            shape: hold the traffic to that speed; otherwise the network does.
        """
        self.chunk_bytes = min(CHUNK_BYTES, max(_SMALLEST_CHUNK, int(speed * _CHUNK_SECONDS)))
        self.uplink = LinkMeter(speed * _LEAST_TO_MEASURE, time.monotonic)
        self._speed = speed
        self._up = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None
        self._down = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None

    async def send(self, size: int) -> None:
        """Returns when `size` bytes may have been sent."""
        await _passing(self._up, size)

    async def receive(self, size: int) -> None:
        """Returns when `size` bytes may have arrived."""
        await _passing(self._down, size)

    def pushing(self) -> AbstractContextManager[None]:
        """A push is under way inside the block, and the time is measured."""
        return self.uplink.transfer()

    def pushed(self, size: int) -> None:
        """Counts a message of `size` bytes of a push that is under way."""
        self.uplink.count(size)

    def deadline(self, size: int, timeout: float) -> float:
        """Tells the seconds to allow for a call that moves `size` bytes and may wait for `timeout` seconds besides."""
        # Other calls may share the link meanwhile, so its full speed is too much to expect.
        return timeout + 4 * size / self._speed


async def _passing(bucket: TokenBucket | None, size: int) -> None:
    if bucket is not None:
        wait = bucket.reserve(size)
        if wait > 0:
            await asyncio.sleep(wait)
