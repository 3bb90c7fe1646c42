"""The time of flushes: after each step (write-through), or by priority in the background (FRUGAL's P2F, §3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.simulator.alternatives.alternative import IterationTraffic, Trained
from esd.dispatcher.simulator.alternatives.cached_rows import LruCaches, RowNumbers, grown

_NEVER = np.iinfo(np.int64).max


class Flushing:
    """A timeline of training steps in which an update must reach the parameter server before the next read of its row.

    In step s all workers first stall until the rows of this step are flushed. Then worker j pulls its missing rows, in
    T_j seconds each, and computes for c_j seconds per sample; the step lasts as long as the slowest worker.
    Write-through flushes all updates after the step, while all workers wait. P2F gives every pending update a priority,
    the next step that reads its row (infinite beyond the lookahead), and flushes in this order while the link is idle.
    A step starts once no pending update has this step or an earlier one as priority (FRUGAL eq. 1 and the gate of
    §3.3). Pending updates of a row at the same worker are flushed as one.

    Caches are LRU and hold latest copies; a row trained by several workers, or by another worker, is pulled again.
    """

    def __init__(
        self,
        capacities: Sequence[int],
        transfer_seconds: NDArray[np.float64],
        sample_seconds: Sequence[float],
        *,
        lookahead: int,
    ) -> None:
        """Starts with empty caches.

        Args:
            capacities: cache rows of each worker, [n].
            transfer_seconds: T_j, float64 [n].
            sample_seconds: c_j, [n].
            lookahead: L, the number of later steps with known reads; 0 is write-through.
        """
        self.lookahead = lookahead
        self._workers = len(capacities)
        self._transfer = transfer_seconds
        self._compute = np.asarray(sample_seconds, np.float64)
        self._numbers = RowNumbers()
        self._caches = LruCaches(capacities)
        self._latest: NDArray[np.bool_] = np.zeros((self._workers, 0), np.bool_)
        self._pending: NDArray[np.bool_] = np.zeros((self._workers, 0), np.bool_)
        self._iteration = 0
        self._stall = self._busy = 0.0

    def step(self, trained: Trained, /) -> IterationTraffic:
        """Carries out one step of the timeline."""
        batch = np.unique(self._numbers.of(trained.batch.ids))
        lookahead_rows = [np.unique(self._numbers.of(later.ids)) for later in trained.lookahead]
        rows = [np.unique(self._numbers.of(trained.ids_of(j))) for j in range(self._workers)]
        self._grow()
        flushed = self._gate(batch) if self.lookahead else np.zeros(self._workers, np.int64)
        pulled = np.array([self._pull(j, needed) for j, needed in enumerate(rows)], np.int64)
        seconds = self._transfer * pulled + self._compute * trained.decision.workloads
        self._busy += float(seconds.max())
        if self.lookahead:
            flushed += self._flush_in_background(lookahead_rows, float(seconds.max()) - self._transfer * pulled)
        self._train(rows)
        if not self.lookahead:
            flushed = self._pending.sum(axis=1)
            self._pending[:] = False
            self._stall += float((self._transfer * flushed).max())
        self._iteration += 1
        lookups = sum(len(needed) for needed in rows)
        operations = Operations(pulled, flushed.astype(np.int64), np.zeros(self._workers, np.int64))
        return IterationTraffic(operations, np.zeros(self._workers), lookups, lookups - int(pulled.sum()))

    def figures(self) -> dict[str, float]:
        """Returns the time of stalls, the time of training and pulling, and the number of pending rows."""
        return {
            "stall_seconds": self._stall,
            "busy_seconds": self._busy,
            "pending_rows": int(self._pending.sum()),
        }

    def _grow(self) -> None:
        rows = len(self._numbers)
        self._caches.grow(rows)
        self._latest, self._pending = grown(self._latest, rows), grown(self._pending, rows)

    def _gate(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """Flushes the rows of the step, while all workers wait. Returns flushed rows by worker."""
        due: NDArray[np.int64] = self._pending[:, batch].sum(axis=1)
        self._pending[:, batch] = False
        self._stall += float((self._transfer * due).max())
        return due

    def _pull(self, worker: int, needed: NDArray[np.int64]) -> int:
        missing = int((~(self._caches.present[worker, needed] & self._latest[worker, needed])).sum())
        self._latest[worker, self._caches.use(worker, needed, self._iteration)] = False
        self._latest[worker, needed] = True
        return missing

    def _flush_in_background(
        self, lookahead_rows: Sequence[NDArray[np.int64]], idle: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Flushes by priority within the idle seconds of each link, float64 [n]. Returns flushed rows by worker."""
        next_read = np.full(self._pending.shape[1], _NEVER)
        # In reverse, so that the nearest read of a row overwrites later ones.
        for distance in reversed(range(len(lookahead_rows))):
            next_read[lookahead_rows[distance]] = self._iteration + 1 + distance
        flushed = np.zeros(self._workers, np.int64)
        for worker in range(self._workers):
            waiting = np.flatnonzero(self._pending[worker])
            affordable = int(idle[worker] / self._transfer[worker])
            first = waiting[np.argsort(next_read[waiting], kind="stable")[:affordable]]
            self._pending[worker, first] = False
            flushed[worker] = len(first)
        return flushed

    def _train(self, rows: Sequence[NDArray[np.int64]]) -> None:
        """Makes the rows pending at the workers that train them; only the copy of a row's sole worker stays latest."""
        trainers = np.zeros(self._pending.shape[1], np.int64)
        for worker, needed in enumerate(rows):
            trainers[needed] += 1
            self._pending[worker, needed] = True
        self._latest[:, trainers > 0] = False
        for worker, needed in enumerate(rows):
            self._latest[worker, needed[trainers[needed] == 1]] = True
