"""Pushing ahead (FRUGAL P2F): on demand, and before that while links are idle, the rows that are read next first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from esd.services.domain.sync.way import Figures, Sync


@dataclass(frozen=True, slots=True)
class FlushedAhead(Figures):
    """Rows that were pushed before any worker needed them.

    Attributes:
        rows: how many rows and partial gradients; they are among the update pushes.
    """

    rows: int = 0

    def __add__(self, other: Figures) -> FlushedAhead:
        return FlushedAhead(self.rows + other.rows) if isinstance(other, FlushedAhead) else self

    def save(self) -> dict[str, float]:
        """Returns all figures as numbers by name."""
        return {"flushed_ahead": self.rows}

    @classmethod
    def load(cls, saved: Mapping[str, float]) -> Self:
        """Returns the figures that `save` wrote; zeros for missing ones."""
        return cls(int(saved.get("flushed_ahead", 0)))

    @classmethod
    def of_counts(cls, counts: Sequence[int]) -> Self:
        """Returns the figures of an iteration from the counts of the engine, one per worker."""
        return cls(sum(counts))


@dataclass(frozen=True, slots=True)
class Proactive(Sync):
    """Pushes the rows that other workers need, before they need them."""

    name: ClassVar[str] = "proactive"
    figures: ClassVar[type[Figures]] = FlushedAhead
