"""The links of a worker's machine, which all that it sends and receives shares."""

from __future__ import annotations

import time

from esd.services.clients.link_count import LinkCount
from esd.services.clients.traffic import Traffic
from esd.services.wire.rows import CHUNK_BYTES
from esd.worker.core.bandwidth import LinkMeter, TokenBucket

_SMALLEST_CHUNK = 2**14  # bytes
_CHUNK_SECONDS = 0.05  # on a slow link, one message should not delay the others for longer
_JOINED_SECONDS = 0.004  # a message costs a server some tenths of a millisecond
_BURST_SECONDS = 0.02  # compensates for late wake-ups of the event loop
_BURSTS_OF_NETWORKS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)  # seconds
_LEAST_TO_MEASURE = 0.05  # seconds of full speed; a shorter push would measure the server's delay


class Link(Traffic):
    """Both directions of one link, shared by all messages that the worker sends and receives.

    Attributes:
        shaped: whether this link limits the speed of the traffic.
        uplink: measures pushes. (A pull may wait for another worker's push, so its time is no measure.)
        count: counts the bytes that pass.
    """

    def __init__(self, speed: float, *, shape: bool) -> None:
        """Opens the link.

        Args:
            speed: bytes per second, in each direction.
            shape: whether to limit the traffic to that speed; otherwise the network limits it.
        """
        self.count = LinkCount()
        self.chunk_bytes = min(CHUNK_BYTES, max(_SMALLEST_CHUNK, int(speed * _CHUNK_SECONDS)))
        self.joined_bytes = min(CHUNK_BYTES, int(speed * _JOINED_SECONDS))
        self.uplink = LinkMeter(
            speed * _LEAST_TO_MEASURE, (_BURST_SECONDS,) if shape else _BURSTS_OF_NETWORKS, time.monotonic
        )
        self.shaped = shape
        self._speed = speed
        self._up = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None
        self._down = TokenBucket(speed, _BURST_SECONDS, time.monotonic) if shape else None

    def up(self, size: int) -> float:
        """Accounts for `size` bytes to a server; returns the seconds until they may have been sent."""
        return self._up.reserve(size) if self._up is not None else 0.0

    def down(self, size: int) -> float:
        """Accounts for `size` bytes from a server; returns the seconds until they may have arrived."""
        return self._down.reserve(size) if self._down is not None else 0.0

    def sent(self, **sizes: int) -> None:
        """Counts a message that leaves, by the kinds of its bytes (LINK_KINDS)."""
        self.count.sent(**sizes)

    def received(self, **sizes: int) -> None:
        """Counts a message that has arrived, likewise."""
        self.count.received(**sizes)

    def push_begins(self) -> None:
        """Begins to measure the time of a push."""
        self.uplink.begin()

    def push_ends(self, size: int) -> None:
        """Ends the measurement of a push of `size` bytes."""
        self.uplink.end(size)

    def deadline(self, size: int, timeout: float) -> float:
        """Returns the deadline of a call that moves `size` bytes and may wait for another `timeout` seconds."""
        # Other messages may share the link, so the call may get a part of its speed only.
        return timeout + 4 * size / self._speed


class TrafficBeside(Traffic):
    """All messages that share the link with the pushes to parameter servers: plans, sums, and rows to other workers.

    The time of their answer depends on other workers: on a link, and on whether a plan is there. So they are measured
    until they have left where this worker shapes its link, and otherwise only while pushes are measured.

    Args:
        link: shared with the pushes.
    """

    def __init__(self, link: Link) -> None:
        self.chunk_bytes = link.chunk_bytes
        self.joined_bytes = link.joined_bytes
        self._link = link

    def down(self, size: int) -> float:
        """Accounts for `size` bytes that arrive; returns the seconds until they may have arrived."""
        return self._link.down(size)

    def sent(self, **sizes: int) -> None:
        """Counts a message that leaves, by the kinds of its bytes (LINK_KINDS)."""
        self._link.sent(**sizes)

    def received(self, **sizes: int) -> None:
        """Counts a message that has arrived, likewise."""
        self._link.received(**sizes)

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
        """Returns the deadline of a call that moves `size` bytes and may wait for another `timeout` seconds."""
        return self._link.deadline(size, timeout)
