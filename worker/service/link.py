"""The worker's link to the parameter servers and to the other workers."""

from __future__ import annotations

import time

from esd.services.clients.traffic import Traffic
from esd.services.wire.rows import CHUNK_BYTES
from esd.worker.core.bandwidth import LinkMeter, TokenBucket

_SMALLEST_CHUNK = 2**14  # bytes
_CHUNK_SECONDS = 0.05  # on a slow link, what moves at once should not hold up the rest for longer
_BURST_SECONDS = 0.02  # makes good for late wake-ups of the event loop
_BURSTS_OF_NETWORKS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)  # seconds
_LEAST_TO_MEASURE = 0.05  # seconds of full speed; with less, what is measured is the server's delay


class Link(Traffic):
    """Both directions of one link, shared by all rows that the worker sends and gets.

    Attributes:
        shaped: whether the traffic is held to a speed here.
        uplink: measures pushes. (A pull's time says little: it may wait for another worker's push.)
    """

    def __init__(self, speed: float, *, shape: bool) -> None:
        """Opens the link.

        Args:
            speed: bytes per second, in each direction.
            shape: hold the traffic to that speed; otherwise the network does.
        """
        self.chunk_bytes = min(CHUNK_BYTES, max(_SMALLEST_CHUNK, int(speed * _CHUNK_SECONDS)))
        self.uplink = LinkMeter(
            speed * _LEAST_TO_MEASURE, (_BURST_SECONDS,) if shape else _BURSTS_OF_NETWORKS, time.monotonic
        )
        self.shaped = shape
        self._speed = speed
        self._up = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None
        self._down = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None

    def up(self, size: int) -> float:
        """Takes `size` bytes on their way to a server; returns the seconds until they may have been sent."""
        return self._up.reserve(size) if self._up is not None else 0.0

    def down(self, size: int) -> float:
        """Takes `size` bytes on their way from a server; returns the seconds until they may have arrived."""
        return self._down.reserve(size) if self._down is not None else 0.0

    async def receive_in_parts(self, size: int) -> None:
        """Returns when a message may have arrived whose sender has cut it for a link of its own speed.

        Other messages may come between its parts.
        """
        for start in range(0, size, self.chunk_bytes):
            await self.receive(min(self.chunk_bytes, size - start))

    def push_begins(self) -> None:
        """A push is under way from now on, and its time is measured."""
        self.uplink.begin()

    def push_ends(self, size: int) -> None:
        """A push of `size` bytes is over."""
        self.uplink.end(size)

    def deadline(self, size: int, timeout: float) -> float:
        """Returns the seconds to allow for what moves `size` bytes and may wait for `timeout` seconds besides."""
        # Others may share the link meanwhile, so its full speed is too much to expect.
        return timeout + 4 * size / self._speed


class TrafficBeside(Traffic):
    """What goes over a link beside the pushes that measure it.

    When it is answered tells of the receiver: of its link, and of whether it has its plan. So it is measured where this
    worker shapes its link, until it has left, and otherwise counts as far as it goes beside pushes.

    Args:
        link: shared with the pushes.
    """

    def __init__(self, link: Link) -> None:
        self.chunk_bytes = link.chunk_bytes
        self._link = link

    async def send(self, size: int) -> None:
        """Returns when a message of `size` bytes may have been sent."""
        if not self._link.shaped:
            self._link.uplink.carry(size)
            return
        self._link.push_begins()
        try:
            await self._link.send(size)
        finally:
            self._link.push_ends(size)

    def deadline(self, size: int, timeout: float) -> float:
        """Returns the seconds to allow for what moves `size` bytes and may wait for `timeout` seconds besides."""
        return self._link.deadline(size, timeout)
