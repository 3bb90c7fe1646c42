"""Embedding transmission operations, counted from plans (ESD §3.2: miss pull, update push, evict push)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from services.domain.plans import FlushPlan, IterationPlan

if TYPE_CHECKING:  # the shapes of the engine's dicts exist in its stub only
    from esd_native.engine import PlanColumns


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

    @classmethod
    def of(cls, plans: Sequence[IterationPlan]) -> Self:
        """Counts one iteration's plans, one plan per worker in slot order."""
        return cls(
            np.array([len(p.pulls) for p in plans], np.int64),
            np.array([len(p.update_rows) + len(p.update_gradients) for p in plans], np.int64),
            np.array([len(p.evict_rows) + len(p.evict_gradients) for p in plans], np.int64),
        )

    @classmethod
    def sizes(cls, columns: Sequence[PlanColumns]) -> Self:
        """The size of the rows that one iteration moves, in the engine's unit, from its columns in slot order."""
        return cls(
            np.array([c["pulls"]["size"] for c in columns], np.int64),
            np.array([c["update_rows"]["size"] + c["update_gradients"]["size"] for c in columns], np.int64),
            np.array([c["evict_rows"]["size"] + c["evict_gradients"]["size"] for c in columns], np.int64),
        )

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
