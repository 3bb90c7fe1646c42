"""Alternatives with traffic that follows from the batch alone: no cache, and FAE's fixed set of hot rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.simulator.alternatives.alternative import IterationTraffic, Trained


class NoCache:
    """No cache: pulls the rows of a micro-batch and pushes their gradients in every iteration (SCARS §II.A).

    Coalesced, a row moves once per worker even if several of its samples share the row; uncoalesced, it moves once per
    sample and field.
    """

    lookahead = 0

    def __init__(self, workers: int, *, coalesced: bool) -> None:
        self._workers = workers
        self._coalesced = coalesced
        self._lookups = self._distinct = 0

    def step(self, trained: Trained, /) -> IterationTraffic:
        """Counts distinct ids if rows are coalesced, all ids otherwise."""
        ids = [trained.ids_of(j) for j in range(self._workers)]
        distinct = [len(np.unique(of_worker)) for of_worker in ids]
        self._lookups += trained.batch.ids.size
        self._distinct += sum(distinct)
        rows = np.array(distinct if self._coalesced else [of_worker.size for of_worker in ids], np.int64)
        operations = Operations(rows, rows, np.zeros_like(rows))
        return IterationTraffic(operations, np.zeros(self._workers), int(rows.sum()), 0)

    def figures(self) -> dict[str, float]:
        """Returns the saving by coalescing, as ids per distinct id of a micro-batch."""
        return {"ids_per_distinct_id": self._lookups / max(1, self._distinct)}


class Fae:
    """FAE keeps the most popular rows on every worker for the whole run, equal by all-reduce (ESD §6.1, Herald §6.3).

    Hot rows are never pulled and never pushed; other rows are not cached.

    A ring all-reduce sums the gradients of all hot rows that an iteration trains on any worker: every link moves
    2 (n-1)/n of these gradients.
    """

    lookahead = 0

    def __init__(self, workers: int, hot: NDArray[np.uint64]) -> None:
        """Fixes the hot ids, such as a result of `most_popular`."""
        self._workers = workers
        self._hot = np.sort(hot)
        self._reduced = self._iterations = 0

    def step(self, trained: Trained, /) -> IterationTraffic:
        """Counts transfers of cold rows to and from the parameter server, and the all-reduce of hot rows."""
        distinct = [np.unique(trained.ids_of(j)) for j in range(self._workers)]
        cold = np.array([int((~np.isin(ids, self._hot)).sum()) for ids in distinct], np.int64)
        reduced = int(np.isin(np.unique(trained.batch.ids), self._hot).sum())
        self._reduced += reduced
        self._iterations += 1
        lookups = sum(len(ids) for ids in distinct)
        share = np.full(self._workers, 2 * (self._workers - 1) / self._workers * reduced)
        return IterationTraffic(Operations(cold, cold, np.zeros_like(cold)), share, lookups, lookups - int(cold.sum()))

    def figures(self) -> dict[str, float]:
        """Returns the number of hot rows, and the mean number of hot rows that an iteration reduces."""
        return {"hot_rows": len(self._hot), "reduced_rows_mean": self._reduced / max(1, self._iterations)}


def most_popular(ids: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    """Returns the `rows` most frequent ids of a profile of any shape; of equal ids the lower."""
    distinct, counts = np.unique(ids, return_counts=True)
    return distinct[np.argsort(-counts, kind="stable")[:rows]]
