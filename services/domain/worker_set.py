"""Sets of workers in plans, pushes and checkpoints: one bit per worker slot.

A column of sets has one word of each set, uint64 [r], or two words with the lower one first, uint64 [r, 2].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAX_WORKERS = 128  # sets in native code have one or two words (native/common/workers.h)

_WORD = 2**64 - 1


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

    @classmethod
    def of_words(cls, words: Iterable[int]) -> Self:
        """Makes the set with these words of 64 bits, the lowest first."""
        return cls(sum(word << 64 * at for at, word in enumerate(words)))

    @property
    def words(self) -> tuple[int, int]:
        """The bits of slots 0 to 63, and of slots 64 to 127."""
        return self.mask & _WORD, self.mask >> 64

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


def set_at(sets: NDArray[np.uint64], at: int) -> WorkerSet:
    """Returns one set of a column."""
    return WorkerSet.of_words(np.atleast_1d(sets[at]).tolist())


def absent(sets: NDArray[np.uint64], worker: int) -> NDArray[np.bool_]:
    """Returns the sets of a column without this worker slot, bool [r]."""
    words = sets[:, np.newaxis] if sets.ndim == 1 else sets
    if worker >= 64 * words.shape[1]:
        return np.ones(len(sets), np.bool_)
    found: NDArray[np.bool_] = words[:, worker // 64] >> np.uint64(worker % 64) & np.uint64(1) == 0
    return found


def empty(sets: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Returns which sets of a column have no worker, bool [r]."""
    found: NDArray[np.bool_] = sets == 0 if sets.ndim == 1 else np.count_nonzero(sets, axis=1) == 0
    return found


def several(sets: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Returns which sets of a column have two workers or more, bool [r]."""
    in_word: NDArray[np.bool_] = (sets & (sets - np.uint64(1))) != 0
    if sets.ndim == 1:
        return in_word
    found: NDArray[np.bool_] = in_word.any(axis=1) | (sets != 0).all(axis=1)
    return found
