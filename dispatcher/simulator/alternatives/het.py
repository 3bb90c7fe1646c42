"""HET's cache with bounded staleness (Herald §2.1, ESD §6.1); with bound 0 it is full synchronisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.simulator.alternatives.alternative import IterationTraffic, Trained
from esd.dispatcher.simulator.alternatives.cached_rows import LruCaches, RowNumbers, grown


class Het:
    """Every worker updates its own copies, and pushes a row after more than `bound` updates.

    A copy may be read while it lacks at most `bound` of the parameter server's updates. Otherwise the worker pushes its
    own updates of the row and pulls the row again. With bound 0 all updates are pushed after each iteration: vanilla
    BSP, full synchronisation.

    Updates are counted per worker and iteration: a row that three workers train in one iteration has three updates.
    Caches are LRU.
    """

    lookahead = 0

    def __init__(self, capacities: Sequence[int], bound: int) -> None:
        """Starts with empty caches.

        Args:
            capacities: cache rows of each worker, [n].
            bound: largest number of updates that a copy may lack, and that a worker may hold back; 0 is full
                synchronisation.
        """
        self._workers = len(capacities)
        self._bound = bound
        self._numbers = RowNumbers()
        self._caches = LruCaches(capacities)
        self._trained: NDArray[np.int64] = np.zeros(0, np.int64)  # [rows], updates so far
        self._server: NDArray[np.int64] = np.zeros(0, np.int64)  # [rows], updates at the parameter server
        self._base: NDArray[np.int64] = np.zeros((self._workers, 0), np.int64)  # updates contained in a worker's copy
        self._own: NDArray[np.int64] = np.zeros((self._workers, 0), np.int64)  # a worker's updates, not pushed yet
        self._iteration = 0
        self._reads = self._stale_reads = self._missing = self._most_missing = self._checks = 0

    def step(self, trained: Trained, /) -> IterationTraffic:
        """Pulls rows that are missing or too old, trains, and pushes rows with more than `bound` updates."""
        rows = [np.unique(self._numbers.of(trained.ids_of(j))) for j in range(self._workers)]
        self._grow()
        cached = [self._caches.present[j, needed] for j, needed in enumerate(rows)]
        too_old = [cached[j] & self._lags(j, needed) for j, needed in enumerate(rows)]
        misses = [needed[~cached[j] | too_old[j]] for j, needed in enumerate(rows)]
        self._checks += sum(int(copies.sum()) for copies in cached)
        update_push = np.array([self._push(j, needed[too_old[j]]) for j, needed in enumerate(rows)], np.int64)
        evict_push = np.array([self._pull(j, rows[j], misses[j]) for j in range(self._workers)], np.int64)
        for j, needed in enumerate(rows):
            self._count_staleness(j, needed)
        for j, needed in enumerate(rows):
            self._own[j, needed] += 1
            self._trained[needed] += 1
        for j, needed in enumerate(rows):
            update_push[j] += self._push(j, needed[self._own[j, needed] > self._bound])
        self._iteration += 1
        pulled = np.array([len(missed) for missed in misses], np.int64)
        lookups = sum(len(needed) for needed in rows)
        operations = Operations(pulled, update_push, evict_push)
        return IterationTraffic(operations, np.zeros(self._workers), lookups, lookups - int(pulled.sum()))

    def figures(self) -> dict[str, float]:
        """Returns the staleness of the rows that training read, and the number of version checks."""
        return {
            "stale_read_share": self._stale_reads / max(1, self._reads),
            "missing_updates_mean": self._missing / max(1, self._reads),
            "missing_updates_max": self._most_missing,
            "version_checks": self._checks,
        }

    def _grow(self) -> None:
        rows = len(self._numbers)
        self._caches.grow(rows)
        self._trained, self._server = grown(self._trained, rows), grown(self._server, rows)
        self._base, self._own = grown(self._base, rows), grown(self._own, rows)

    def _lags(self, worker: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns for each copy whether it lacks more than `bound` of the parameter server's updates."""
        lags: NDArray[np.bool_] = self._server[rows] - self._base[worker, rows] > self._bound
        return lags

    def _push(self, worker: int, rows: NDArray[np.int64]) -> int:
        """Pushes the worker's own updates of rows; returns the number of rows with updates."""
        own = self._own[worker, rows]
        self._server[rows] += own
        self._base[worker, rows] += own
        self._own[worker, rows] = 0
        return int((own > 0).sum())

    def _pull(self, worker: int, needed: NDArray[np.int64], missed: NDArray[np.int64]) -> int:
        """Brings the needed rows into the cache; returns the number of evicted rows that had to be pushed."""
        victims = self._caches.use(worker, needed, self._iteration)
        pushed = self._push(worker, victims)
        self._base[worker, missed] = self._server[missed]
        return pushed

    def _count_staleness(self, worker: int, needed: NDArray[np.int64]) -> None:
        missing = self._trained[needed] - self._base[worker, needed] - self._own[worker, needed]
        self._reads += len(needed)
        self._stale_reads += int((missing > 0).sum())
        self._missing += int(missing.sum())
        self._most_missing = max(self._most_missing, int(missing.max(initial=0)))
