"""The memory that waiting calls may hold: pulls that wait for rows, uploads, samples that wait for scores.

A call that needs more than is left is refused as Overloaded, so that its caller tries again a little later. A call that
holds all of the used memory itself may take more: its own limits bound it, and waiting for itself would never end.
"""

from __future__ import annotations

from typing import Self

from esd.services.domain.errors import Overloaded


class ByteBudget:
    """Bounds the bytes that all calls hold together.

    Args:
        limit: the most bytes; a single call may exceed it.
        knob: the setting that raises the limit, for the error.
    """

    def __init__(self, limit: int, knob: str) -> None:
        self._limit = limit
        self._knob = knob
        self._held = 0

    def share(self) -> Share:
        """Returns the share of one call, empty at first. Closing it, or leaving its block, gives the bytes back."""
        return Share(self)

    def take(self, size: int, *, besides: int) -> None:
        """Takes bytes for a call that holds `besides` bytes already. Raises Overloaded if too few are left."""
        others = self._held - besides
        if others and self._held + size > self._limit:
            raise Overloaded(
                f"waiting calls hold {self._held} bytes, and this one needs {size} more; the limit is "
                f"{self._knob}={self._limit}"
            )
        self._held += size

    def give_back(self, size: int) -> None:
        """Returns the bytes of a call."""
        self._held -= size


class Share:
    """The bytes of one call.

    Attributes:
        held: the bytes that it has taken.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self.held = 0
        self._budget = budget

    def take(self, size: int) -> None:
        """Takes more bytes. Raises Overloaded if too few are left."""
        self._budget.take(size, besides=self.held)
        self.held += size

    def close(self) -> None:
        """Returns all bytes. May be repeated."""
        self._budget.give_back(self.held)
        self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
