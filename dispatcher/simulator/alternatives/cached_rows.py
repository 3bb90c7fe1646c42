"""Row numbers for ids, and LRU caches as arrays: the common bookkeeping of alternatives with caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import ResourceExhausted

S = TypeVar("S", bound=np.generic)


class RowNumbers:
    """Numbers ids 0, 1, 2, ... in the order of their first batches, ascending within a batch."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.uint64)  # ascending
        self._numbers = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the number of each id, int64 of the same shape; a new id gets the next number."""
        distinct = np.unique(ids)
        fresh = distinct[~np.isin(distinct, self._ids, assume_unique=True)]
        if len(fresh):
            positions = np.searchsorted(self._ids, fresh)
            numbers = len(self._ids) + np.arange(len(fresh))
            self._ids = np.insert(self._ids, positions, fresh)
            self._numbers = np.insert(self._numbers, positions, numbers)
        return self._numbers[np.searchsorted(self._ids, ids)]


def grown(array: NDArray[S], rows: int) -> NDArray[S]:
    """Returns the array with at least `rows` entries in its last axis; new entries are zeros after the old ones."""
    if array.shape[-1] >= rows:
        return array
    bigger = np.zeros((*array.shape[:-1], max(rows, 2 * array.shape[-1], 1024)), array.dtype)
    bigger[..., : array.shape[-1]] = array
    return bigger


class LruCaches:
    """The cached rows of n workers. The least recently used row leaves first; of equal rows the lower number.

    Attributes:
        present: bool [n, rows].
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self._capacities = tuple(capacities)
        self._sizes = [0] * len(capacities)
        self._last_use: NDArray[np.int64] = np.zeros((len(capacities), 0), np.int64)
        self.present: NDArray[np.bool_] = np.zeros((len(capacities), 0), np.bool_)

    def grow(self, rows: int) -> None:
        """Makes room for row numbers below `rows`."""
        self.present = grown(self.present, rows)
        self._last_use = grown(self._last_use, rows)

    def use(self, worker: int, rows: NDArray[np.int64], now: int) -> NDArray[np.int64]:
        """Brings distinct rows into a cache, and returns the rows that leave it.

        Raises:
            ResourceExhausted: the cache has fewer slots than there are rows.
        """
        if len(rows) > self._capacities[worker]:
            raise ResourceExhausted(
                f"worker {worker} caches {self._capacities[worker]} rows, iteration {now} needs {len(rows)}"
            )
        present, last_use = self.present[worker], self._last_use[worker]
        self._sizes[worker] += int((~present[rows]).sum())
        present[rows] = True
        last_use[rows] = now
        leaving = self._sizes[worker] - self._capacities[worker]
        if leaving <= 0:
            return np.empty(0, np.int64)
        others = np.flatnonzero(present & (last_use < now))
        victims = others[np.argsort(last_use[others], kind="stable")[:leaving]]
        present[victims] = False
        self._sizes[worker] -= leaving
        return victims
