"""Embedding transmission operations (ESD §3.2: miss pull, update push, evict push)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from services.domain.plans import FlushPlan


@dataclass(frozen=True, slots=True)
class Operations:
    """Rows that each worker moves over its link, by kind; or their size, in bytes or in units.

    Attributes:
        miss_pull: int64 [n], missing or outdated rows fetched.
        update_push: int64 [n], rows or partial gradients pushed because some worker needs them.
        evict_push: int64 [n], rows or partial gradients pushed because they leave the cache.
    """

    miss_pull: NDArray[np.int64]
    update_push: NDArray[np.int64]
    evict_push: NDArray[np.int64]

    @classmethod
    def none(cls, workers: int) -> Self:
        """No operation at any of n workers."""
        return cls(*(np.zeros(workers, np.int64) for _ in range(3)))

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.miss_pull + other.miss_pull,
            self.update_push + other.update_push,
            self.evict_push + other.evict_push,
        )

    def __mul__(self, factor: int) -> Self:
        return type(self)(self.miss_pull * factor, self.update_push * factor, self.evict_push * factor)

    @property
    def total(self) -> NDArray[np.int64]:
        """int64 [n]: of all kinds together."""
        return self.miss_pull + self.update_push + self.evict_push


def flush_pushes(plans: Sequence[FlushPlan]) -> NDArray[np.int64]:
    """Rows and partial gradients that each worker pushes at the end of the stream, int64 [n]."""
    return np.array([len(p.rows) + len(p.gradients) for p in plans], np.int64)
