"""The bytes on a worker's link, by kind and direction, with the bytes that the network adds."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from esd.services.domain.framing import framing_bytes
from esd.services.domain.reports import TransferCounts


class LinkCount:
    """Counts the bytes that pass a worker's link in one epoch. Any thread may use it.

    Messages are counted where they leave and arrive, sums in a ring of workers by formula, and `framing` by formula for
    both. It leaves out TCP's acknowledgements without data, HTTP/2's pings and window updates, packets that are sent
    again, and the calls with which an epoch begins.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted: Counter[str] = Counter()

    def sent(self, **sizes: int) -> None:
        """Counts a message that leaves, by the kinds of its bytes (LINK_KINDS)."""
        self._count("up", sizes)

    def received(self, **sizes: int) -> None:
        """Counts a message that has arrived, likewise."""
        self._count("down", sizes)

    def take(self) -> TransferCounts:
        """Returns the counts since the last call, and begins anew."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
        return TransferCounts(**counted)

    def _count(self, direction: str, sizes: dict[str, int]) -> None:
        added = framing_bytes(sum(sizes.values()))
        with self._lock:
            for kind, size in (*sizes.items(), ("framing", added)):
                self._counted[f"link_{kind}_{direction}"] += size
