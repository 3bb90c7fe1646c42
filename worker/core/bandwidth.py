"""The arithmetic of a link's bandwidth: measuring it, and keeping traffic to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

_SPANS = 32  # that a measurement looks back on
_NEARLY_BEST = 1.5  # times the least deviation: what deviates no more may be chance


class LinkMeter:
    """Measures how many bytes per second a link carries in the long run.

    What counts is spans in which at least one transfer was under way. A link that was idle may begin with a burst,
    which is faster than its speed: it has saved up, for some time at most. So that much of the idle time before a span
    counts like the span itself.

    Args:
        minimum_bytes: with less traffic, delays weigh more than the link, and no figure is given.
        bursts: for how many seconds an idle link may save up. Of several, the one counts with which the latest spans
            agree best on one speed, and of those that are nearly as good the shortest.
        clock: seconds, monotonic.
    """

    def __init__(self, minimum_bytes: float, bursts: Sequence[float], clock: Callable[[], float]) -> None:
        self._minimum_bytes = minimum_bytes
        self._bursts = np.sort(bursts)[:, None]
        self._clock = clock
        self._transfers = 0
        self._bytes = 0  # of the present span
        self._new_bytes = 0  # of the spans since `take`
        self._busy_since = 0.0
        self._idle_since = clock()
        self._idle_seconds = 0.0  # before the present span
        self._spans: deque[tuple[float, float, float]] = deque(maxlen=_SPANS)  # bytes, seconds, idle seconds before

    def begin(self) -> None:
        """Notes that a transfer is under way from now on. Transfers may overlap."""
        if self._transfers == 0:
            self._busy_since = self._clock()
            self._idle_seconds = self._busy_since - self._idle_since
        self._transfers += 1

    def carry(self, size: int) -> None:
        """Notes bytes that go beside the transfers that are under way, and are no transfer of their own."""
        if self._transfers:
            self._bytes += size

    def end(self, size: int) -> None:
        """Notes that a transfer of `size` bytes is over."""
        self._bytes += size
        self._transfers -= 1
        if self._transfers == 0:
            self._idle_since = self._clock()
            self._spans.append((self._bytes, self._idle_since - self._busy_since, self._idle_seconds))
            self._new_bytes += self._bytes
            self._bytes = 0

    def take(self) -> float:
        """Returns bytes per second, by the latest 32 spans; 0 after too little traffic since the last call."""
        new_bytes, self._new_bytes = self._new_bytes, 0
        if new_bytes < self._minimum_bytes:
            return 0.0
        sizes, seconds, idle = np.array(self._spans).T
        filled = seconds + np.minimum(idle, self._bursts)
        total = filled.sum(axis=1)
        speeds = np.divide(sizes.sum(), total, out=np.zeros_like(total), where=total > 0)
        deviations = np.square(sizes - speeds[:, None] * filled).sum(axis=1)
        shortest = np.argmax(deviations <= _NEARLY_BEST * deviations.min())
        return float(speeds[shortest])


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
