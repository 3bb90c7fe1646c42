"""The arithmetic of a link's bandwidth: measuring it, and keeping traffic to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

_SPANS = 32  # spans that a measurement covers
_NEARLY_BEST = 1.5  # times the least deviation: a smaller difference may be chance


class LinkMeter:
    """Measures how many bytes per second a link carries in the long run.

    Only spans with at least one transfer in progress count. A link that was idle may begin with a burst above its
    speed, because it has saved up unused capacity, for a limited time. So up to that limit the idle time before a span
    counts like the span itself.

    Args:
        minimum_bytes: with less traffic, delays dominate, and there is no measurement.
        bursts: for how many seconds an idle link may save up capacity. Of several values, the one is used under which
            the latest spans agree best on one speed; among nearly equal ones, the shortest.
        clock: returns seconds, monotonic.
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
        """Records the start of a transfer. Transfers may overlap."""
        if self._transfers == 0:
            self._busy_since = self._clock()
            self._idle_seconds = self._busy_since - self._idle_since
        self._transfers += 1

    def carry(self, size: int) -> None:
        """Records bytes that accompany the transfers in progress and are not a transfer of their own."""
        if self._transfers:
            self._bytes += size

    def end(self, size: int) -> None:
        """Records the end of a transfer of `size` bytes."""
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
    """Limits bytes to `rate` per second after a burst.

    Reservations are granted in the order of their calls. A reservation above the burst is granted, too, with a longer
    wait, so a chunk of any size passes. The bucket is full at first.

    Args:
        rate: bytes per second, > 0.
        burst_seconds: for how long an idle link saves up capacity, which also makes up for late wake-ups of the caller.
        clock: returns seconds, monotonic.
    """

    def __init__(self, rate: float, burst_seconds: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst_seconds = burst_seconds
        self._clock = clock
        self._paid_until = clock() - burst_seconds

    def reserve(self, size: int) -> float:
        """Reserves `size` bytes, and returns the seconds until they may have passed, 0 or more."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - self._burst_seconds) + size / self._rate
        return max(0.0, self._paid_until - now)
