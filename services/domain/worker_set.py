"""Sets of workers in plans, pushes and checkpoints: one bit per worker slot.

A column of sets has one word of each set, uint64 [r], or two words with the lower one first, uint64 [r, 2].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """A set of worker slots. Iteration yields the slots in ascending order.

    Attributes:
        mask: bit w is set if slot w belongs to the set.
    """

    mask: int = 0

    @classmethod
    def of(cls, slots: Iterable[int]) -> Self:
        """Makes the set of these slots, which may be repeated."""
        mask = 0
        for slot in slots:
            mask |= 1 << slot
        return cls(mask)

    @classmethod
    def all_of(cls, workers: int) -> Self:
        """Makes the set of all slots of a job with `workers` workers."""
        return cls((1 << workers) - 1)

    def __contains__(self, slot: int) -> bool:
        return slot >= 0 and bool(self.mask >> slot & 1)

    def __iter__(self) -> Iterator[int]:
        return (slot for slot in range(self.mask.bit_length()) if slot in self)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __le__(self, other: Self) -> bool:
        """Returns whether every slot of this set is in the other one."""
        return not self.mask & ~other.mask

    def __str__(self) -> str:
        return f"{self.mask:#x}"


def several(sets: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Returns which sets of a column have two workers or more, bool [r]."""
    in_word: NDArray[np.bool_] = (sets & (sets - np.uint64(1))) != 0
    if sets.ndim == 1:
        return in_word
    found: NDArray[np.bool_] = in_word.any(axis=1) | (sets != 0).all(axis=1)
    return found
