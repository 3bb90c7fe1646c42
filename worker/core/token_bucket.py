"""The arithmetic of a shaped link."""

from __future__ import annotations

from collections.abc import Callable


class TokenBucket:
    """Says when bytes may pass, so that no more than `rate` bytes per second do, after a burst.

    Reservations are granted in the order they are made. A reservation larger than the burst is granted too and
    is paid for by waiting, so a chunk never has to fit the bucket.
    """

    def __init__(self, rate: float, burst_seconds: float, clock: Callable[[], float]) -> None:
        """Starts full.

        Args:
            rate: bytes per second, > 0.
            burst_seconds: how long an idle link saves up. It also pays back late wake-ups of the caller.
            clock: seconds, monotonic.
        """
        self._rate = rate
        self._burst_seconds = burst_seconds
        self._clock = clock
        self._paid_until = clock() - burst_seconds

    def reserve(self, size: int) -> float:
        """Takes `size` bytes and returns the seconds to wait until they have passed (0 or more)."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - self._burst_seconds) + size / self._rate
        return max(0.0, self._paid_until - now)
