"""A way to synchronise decides when workers push trained rows, and which copies of rows they train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that a way to synchronise counts of its iterations; this class counts none."""

    def __add__(self, other: Figures) -> Figures:
        return other

    @classmethod
    def of_counts(cls, counts: Sequence[int]) -> Self:  # noqa: ARG003
        """Returns the figures of an iteration from the counts of the engine."""
        return cls()

    def save(self) -> dict[str, float]:
        """Returns all figures as numbers by name."""
        return {}

    @classmethod
    def load(cls, saved: Mapping[str, float]) -> Self:  # noqa: ARG003
        """Returns the figures that `save` wrote; zeros for missing ones."""
        return cls()


NO_FIGURES = Figures()


@dataclass(frozen=True, slots=True)
class Sync:
    """A way to synchronise, with its options. Each subclass is one way.

    Attributes:
        name: as `--sync` names it.
        exact: whether it trains the model that one process would train.
        keeps_copies: whether each worker trains a copy of its own of a row that several train.
        delivers: whether rows go from worker to worker.
        awaits_storage: whether an iteration trains only when everything pushed before it is stored.
        pinned_rows: rows of the first table's size that stay in the cache of every worker.
        figures: the class of its figures.

    Example:
        >>> job = esd.load("model").job
        >>> str(job.sync), job.sync.exact
        ('on-demand', True)
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    keeps_copies: ClassVar[bool] = False
    awaits_storage: ClassVar[bool] = False
    figures: ClassVar[type[Figures]] = Figures

    @property
    def delivers(self) -> bool:
        """See above."""
        return False

    @property
    def pinned_rows(self) -> int:
        """See above."""
        return 0

    def __str__(self) -> str:
        """Returns the way as `--sync` has it, with its numbers."""
        numbers = ",".join(str(getattr(self, option.name)) for option in fields(self) if option.type == "int")
        return f"{self.name}:{numbers}" if numbers else self.name
