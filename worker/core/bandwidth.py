"""The arithmetic of a link's bandwidth: measuring it, and keeping traffic to it."""

from __future__ import annotations

from collections.abc import Callable


class LinkMeter:
    """Measures bytes per second over the time in which at least one transfer was under way.

    Args:
        minimum_bytes: with less traffic, delays weigh more than the link, and no figure is given.
        clock: seconds, monotonic.
    """

    def __init__(self, minimum_bytes: float, clock: Callable[[], float]) -> None:
        self._minimum_bytes = minimum_bytes
        self._clock = clock
        self._transfers = 0
        self._busy_since = 0.0
        self._busy_seconds = 0.0
        self._bytes = 0

    def begin(self) -> None:
        """Notes that a transfer is under way from now on. Transfers may overlap."""
        if self._transfers == 0:
            self._busy_since = self._clock()
        self._transfers += 1

    def end(self, size: int) -> None:
        """Notes that a transfer of `size` bytes is over."""
        self._bytes += size
        self._transfers -= 1
        if self._transfers == 0:
            self._busy_seconds += self._clock() - self._busy_since

    def take(self) -> float:
        """Returns bytes per second of the transfers that ended since the last call; 0 after too little traffic."""
        size, seconds = self._bytes, self._busy_seconds
        self._bytes, self._busy_seconds = 0, 0.0
        return size / seconds if size >= self._minimum_bytes and seconds > 0 else 0.0


class TokenBucket:
    """Says when bytes may pass, so that after a burst no more than `rate` bytes per second do.

    Reservations are granted in the order in which they are made. One that is larger than the burst is granted, too, and
    is paid for by waiting, so that a chunk never has to fit the bucket. The bucket is full at first.

    Args:
        rate: bytes per second, > 0.
        burst_seconds: for how long an idle link saves up. What it saves also pays for late wake-ups of the caller.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: float, burst_seconds: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst_seconds = burst_seconds
        self._clock = clock
        self._paid_until = clock() - burst_seconds

    def reserve(self, size: int) -> float:
        """Takes `size` bytes, and returns the seconds until they may have passed, 0 or more."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - self._burst_seconds) + size / self._rate
        return max(0.0, self._paid_until - now)
