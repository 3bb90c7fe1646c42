"""Herald's table profiler: how worthwhile each embedding table is for scheduling (Herald §3.2, §4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_COMPACT_ROWS = 1 << 16


class TableProfiler:
    """Counts how often every id occurs, field by field, and ranks the fields (tables) by degree of infrequency.

    A row is infrequent when it is accessed less often than one worker trains samples, both counted from the start of
    the stream, and at most once per sample. A table's degree of infrequency (DoI) is the share of infrequent ones
    among the rows seen. Herald takes the rows in the caches instead of those seen; which rows those are depends on
    the dispatch, and the ranking must not.
    """

    def __init__(self, fields: int, workers: int) -> None:
        self._workers = workers
        self._samples = 0
        self._refresh_at = 0
        self._counts = [_Counts() for _ in range(fields)]
        self._order = np.arange(fields)

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Counts a batch, uint64 [k, F]. The ranking is refreshed whenever the stream has doubled."""
        for counts, column in zip(self._counts, ids.T, strict=True):
            counts.add(column)
        self._samples += len(ids)
        if self._samples >= self._refresh_at:
            self._refresh_at = 2 * self._samples
            self._order = np.argsort(-self.degrees(), kind="stable")

    def degrees(self) -> NDArray[np.float64]:
        """float64 [F], the DoI of every table now, 0..1; 1 for a table without rows."""
        popular = self._samples / self._workers
        return np.array([counts.share_below(popular) for counts in self._counts])

    def highest(self, tables: int) -> NDArray[np.uint32]:
        """The fields of the highest DoI as of the last refresh, uint32 [tables], ascending."""
        return np.sort(self._order[:tables]).astype(np.uint32)


class _Counts:
    """Occurrences by id: a sorted column, and what came in since it was last sorted."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._fresh: list[NDArray[np.uint64]] = []
        self._waiting = 0

    def add(self, ids: NDArray[np.uint64]) -> None:
        self._fresh.append(ids.copy())
        self._waiting += len(ids)
        if self._waiting >= max(_COMPACT_ROWS, len(self._ids)):  # so that sorting stays a constant share
            self._compact()

    def share_below(self, limit: float) -> float:
        self._compact()
        return float((self._counts < limit).mean()) if len(self._counts) else 1.0

    def _compact(self) -> None:
        if not self._fresh:
            return
        ids, places = np.unique(np.concatenate([self._ids, *self._fresh]), return_inverse=True)
        weights = np.concatenate([self._counts, np.ones(self._waiting, np.int64)])
        self._counts = np.bincount(places, weights, len(ids)).astype(np.int64)
        self._ids = ids
        self._fresh, self._waiting = [], 0
