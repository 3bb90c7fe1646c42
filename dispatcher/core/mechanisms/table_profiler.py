"""Herald's table profiler: the value of each embedding table for scheduling (§3.2, §4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch

_COMPACT_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class TableRanking:
    """The tables by degree of infrequency (DoI).

    Attributes:
        degrees: float64 [F], 0..1, the share of infrequent rows of each table; 1 for a table without rows.
    """

    degrees: NDArray[np.float64]

    def highest(self, tables: int) -> NDArray[np.uint32]:
        """Returns the fields with the highest DoI, uint32 [tables], ascending; of equal fields the first."""
        return np.sort(np.argsort(-self.degrees, kind="stable")[:tables]).astype(np.uint32)


class TableProfiler:
    """Counts how often every id occurs, field by field, and ranks the fields (tables) by degree of infrequency.

    A row is infrequent if its number of accesses (at most one per sample) is below the number of samples per worker,
    both counted from the start of the stream. A table's degree of infrequency (DoI) is the share of infrequent rows
    among the rows seen. Herald takes the cached rows instead of the seen rows; cached rows depend on the dispatch, on
    which a ranking must not depend.

    Attributes:
        ranking: the ranking as of the last time that the stream had doubled.
    """

    def __init__(self, fields: int, workers: int) -> None:
        self._workers = workers
        self._samples = 0
        self._refresh_at = 0
        self._counts = [_Counts() for _ in range(fields)]
        self.ranking = TableRanking(np.ones(fields))

    def add(self, batch: SampleBatch) -> None:
        """Counts a batch. The ranking is refreshed whenever the stream has doubled."""
        for field, counts in enumerate(self._counts):
            counts.add(batch.ids_of_feature(field))
        self._samples += len(batch)
        if self._samples >= self._refresh_at:
            self._refresh_at = 2 * self._samples
            self.ranking = TableRanking(self.degrees())

    def degrees(self) -> NDArray[np.float64]:
        """Returns the present DoI of every table, float64 [F]."""
        popular = self._samples / self._workers
        return np.array([counts.share_below(popular) for counts in self._counts])


class _Counts:
    """The number of occurrences of each id of one field: a sorted column, and the ids added since the last sort."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._fresh: list[NDArray[np.uint64]] = []
        self._waiting = 0

    def add(self, ids: NDArray[np.uint64]) -> None:
        self._fresh.append(ids.copy())
        self._waiting += len(ids)
        if self._waiting >= max(_COMPACT_ROWS, len(self._ids)):  # so that the cost of sorting per id stays constant
            self._compact()

    def share_below(self, limit: float) -> float:
        self._compact()
        return float((self._counts < limit).mean()) if len(self._counts) else 1.0

    def _compact(self) -> None:
        if not self._fresh:
            return
        ids, positions = np.unique(np.concatenate([self._ids, *self._fresh]), return_inverse=True)
        weights = np.concatenate([self._counts, np.ones(self._waiting, np.int64)])
        self._counts = np.bincount(positions, weights, len(ids)).astype(np.int64)
        self._ids = ids
        self._fresh, self._waiting = [], 0
