"""How fast a link is, seen from the transfers over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class LinkMeter:
    """Bytes per second over the time in which at least one transfer was under way."""

    def __init__(self, minimum_bytes: float, clock: Callable[[], float]) -> None:
        """Starts at zero.

        Args:
            minimum_bytes: below this, delays weigh more than the link and no figure is given.
            clock: seconds, monotonic.
        """
        self._minimum_bytes = minimum_bytes
        self._clock = clock
        self._transfers = 0
        self._busy_since = 0.0
        self._busy_seconds = 0.0
        self._bytes = 0

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """A transfer is under way inside the block; blocks may overlap."""
        if self._transfers == 0:
            self._busy_since = self._clock()
        self._transfers += 1
        try:
            yield
        finally:
            self._transfers -= 1
            if self._transfers == 0:
                self._busy_seconds += self._clock() - self._busy_since

    def count(self, size: int) -> None:
        """So many bytes have moved."""
        self._bytes += size

    def take(self) -> float:
        """Bytes per second of the transfers that ended since the last call; 0 when there was too little traffic."""
        size, seconds = self._bytes, self._busy_seconds
        self._bytes, self._busy_seconds = 0, 0.0
        return size / seconds if size >= self._minimum_bytes and seconds > 0 else 0.0
