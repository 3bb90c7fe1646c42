"""FAE: the most popular rows on every worker for the whole run, kept equal by all-reduce (ESD §6.1, Herald §6.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations
from dispatcher.simulator.alternatives.protocol import Traffic, Trained


class Fae:
    """Hot rows are never pulled and never pushed; the rest is not cached.

    The gradients of the hot rows that an iteration trains, on any worker, are summed by a ring all-reduce: every link
    moves 2 (n-1)/n of them.
    """

    lookahead = 0

    def __init__(self, workers: int, hot: NDArray[np.uint64]) -> None:
        """Takes the hot ids, found by `most_popular` or any other profile."""
        self._workers = workers
        self._hot = np.sort(hot)
        self._reduced = self._iterations = 0

    def step(self, trained: Trained, /) -> Traffic:
        """Moves cold rows to and from the parameter server, and reduces hot ones."""
        distinct = [np.unique(trained.ids_of(j)) for j in range(self._workers)]
        cold = np.array([int((~np.isin(ids, self._hot)).sum()) for ids in distinct], np.int64)
        reduced = int(np.isin(np.unique(trained.ids), self._hot).sum())
        self._reduced += reduced
        self._iterations += 1
        lookups = sum(len(ids) for ids in distinct)
        share = np.full(self._workers, 2 * (self._workers - 1) / self._workers * reduced)
        return Traffic(Operations(cold, cold, np.zeros_like(cold)), share, lookups, lookups - int(cold.sum()))

    def figures(self) -> dict[str, float]:
        """Hot rows, and how many of them an iteration reduces."""
        return {"hot_rows": len(self._hot), "reduced_rows_mean": self._reduced / max(1, self._iterations)}


def most_popular(ids: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    """The `rows` ids that occur most often in a profile of any shape, ties to the lower id."""
    distinct, counts = np.unique(ids, return_counts=True)
    return distinct[np.argsort(-counts, kind="stable")[:rows]]
