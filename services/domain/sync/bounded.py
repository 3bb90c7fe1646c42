"""Bounded staleness (HET): workers keep updates to themselves, and train on copies that lack some, up to bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync.way import Figures, Sync

MAX_BOUND = 10_000  # updates; the dispatcher counts the updates of each copy in 16 bits
MOST_UPDATES = (0, 1, 2, 4, 8, 16, 32, 64)  # that a read lacks, by bucket; the last bucket, behind these, has no limit


@dataclass(frozen=True, slots=True)
class Staleness(Figures):
    """Reads of rows by how many updates they lacked, wherever these were: at the parameter server or at other workers.

    An update is one worker's training of a row in one iteration.

    Attributes:
        reads: how many (row, worker) pairs of each bucket of MOST_UPDATES, and beyond it, training has read.
        missing_updates: the updates that these reads lacked together.
        most_missing: the most updates that one read lacked.
    """

    reads: tuple[int, ...] = (0,) * (len(MOST_UPDATES) + 1)
    missing_updates: int = 0
    most_missing: int = 0

    def __add__(self, other: Figures) -> Staleness:
        if not isinstance(other, Staleness):
            return self
        return Staleness(
            tuple(a + b for a, b in zip(self.reads, other.reads, strict=True)),
            self.missing_updates + other.missing_updates,
            max(self.most_missing, other.most_missing),
        )

    def save(self) -> dict[str, float]:
        """Returns all figures as numbers by name."""
        figures: dict[str, float] = {f"reads_{bucket}": count for bucket, count in enumerate(self.reads)}
        return figures | {"missing_updates": self.missing_updates, "most_missing": self.most_missing}

    @classmethod
    def load(cls, saved: Mapping[str, float]) -> Self:
        """Returns the figures that `save` wrote; zeros for missing ones."""
        reads = tuple(int(saved.get(f"reads_{bucket}", 0)) for bucket in range(len(MOST_UPDATES) + 1))
        return cls(reads, int(saved.get("missing_updates", 0)), int(saved.get("most_missing", 0)))

    @classmethod
    def of_counts(cls, counts: Sequence[int]) -> Self:
        """Returns the figures of an iteration from the counts of the engine."""
        *reads, missing, most = counts
        return cls(tuple(reads), missing, most)


@dataclass(frozen=True, slots=True)
class Bounded(Sync):
    """Pushes sums of gathered gradients. Bounds above 0 change the trained model (docs/semantics.md).

    Attributes:
        pull: how many updates that the parameter server has a copy may lack that is trained on, 0..10000.
        push: how many updates of a row a worker may keep to itself, 0..10000.
    """

    name: ClassVar[str] = "bounded"
    exact: ClassVar[bool] = False
    keeps_copies: ClassVar[bool] = True
    figures: ClassVar[type[Figures]] = Staleness
    pull: int
    push: int

    def __post_init__(self) -> None:
        for bound in ("pull", "push"):
            value = getattr(self, bound)
            if not 0 <= value <= MAX_BOUND:
                raise InvalidArgument(f"the {bound} bound is {value}, it must be in 0..{MAX_BOUND} (--sync bounded)")
