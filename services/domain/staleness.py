"""How stale the rows are that training reads, where copies may lack updates (`Sync.BOUNDED`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

MOST_UPDATES = (0, 1, 2, 4, 8, 16, 32, 64)  # that a read lacks, by bucket; the last bucket, behind these, has no limit


@dataclass(frozen=True, slots=True)
class Staleness:
    """Reads of rows by how many updates they lacked, wherever these were: at the parameter server or at other workers.

    An update is one worker's training of a row in one iteration. Where copies may not be stale, nothing is counted.

    Attributes:
        reads: how many (row, worker) pairs of each bucket of MOST_UPDATES, and beyond it, training has read.
        missing_updates: what they lacked together.
        most_missing: what one of them lacked at most.
    """

    reads: tuple[int, ...] = (0,) * (len(MOST_UPDATES) + 1)
    missing_updates: int = 0
    most_missing: int = 0

    def __add__(self, other: Staleness) -> Staleness:
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
    def load(cls, saved: dict[str, float]) -> Self:
        """Returns what `save` was called on; zeros for what is not there."""
        reads = tuple(int(saved.get(f"reads_{bucket}", 0)) for bucket in range(len(MOST_UPDATES) + 1))
        return cls(reads, int(saved.get("missing_updates", 0)), int(saved.get("most_missing", 0)))


NEVER_STALE = Staleness()  # nothing is counted
