"""The memory that calls may hold while they wait: pulls for rows, and uploads for their last piece.

A call that would take more than is left is refused as Overloaded, so that its caller tries again a little later. One
that holds all there is may go on: it is bounded by its own limits, and must not wait for itself.
"""

from __future__ import annotations

from typing import Self

from esd.services.domain.errors import Overloaded

# What a pull holds for each of its rows besides the rows themselves: the request, the decoded ids and versions, and
# what the check for repeated ids and the search for missing rows make of them. Measured with 1,000,000 rows: 58.
BYTES_PER_PULLED_ID = 64


class ByteBudget:
    """Bytes that all calls hold together.

    Args:
        limit: the most bytes, unless a single call takes more.
        knob: the setting that raises the limit, for the error.
    """

    def __init__(self, limit: int, knob: str) -> None:
        self._limit = limit
        self._knob = knob
        self._held = 0

    def share(self) -> Share:
        """Returns what one call holds, nothing at first; closing it, as the end of a block does, gives it back."""
        return Share(self)

    def take(self, size: int, *, besides: int) -> None:
        """Takes bytes for a call that holds `besides` bytes already. Raises Overloaded when too few are left."""
        others = self._held - besides
        if others and self._held + size > self._limit:
            raise Overloaded(
                f"waiting calls hold {self._held} bytes, and this one needs {size} more; the limit is "
                f"{self._knob}={self._limit}"
            )
        self._held += size

    def give_back(self, size: int) -> None:
        """Takes bytes of a call back."""
        self._held -= size


class Share:
    """The bytes of one call.

    Attributes:
        held: how many it has taken.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self.held = 0
        self._budget = budget

    def take(self, size: int) -> None:
        """Takes bytes more. Raises Overloaded when too few are left."""
        self._budget.take(size, besides=self.held)
        self.held += size

    def close(self) -> None:
        """Gives everything back. May be repeated."""
        self._budget.give_back(self.held)
        self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
