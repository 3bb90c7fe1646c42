"""Adaptive LAIA: scores only the tables that matter most, as many as the time allows (Herald §4.3)."""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.laia import allocate
from dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from services.domain.batches import SampleBatch
from services.domain.jobs import JobSpec

_SMOOTHING = 0.2
_COMPACT_ROWS = 1 << 16


class LaiaAdaptive:
    """LAIA on the k tables of the highest degree of infrequency. Without a budget k = F, and it is LAIA."""

    lookahead = 0

    def __init__(self, job: JobSpec, *, tables: int | None = None) -> None:
        """Starts without knowledge.

        Args:
            job: whose dispatch it is; every one of its fields is a table of its own.
            tables: k, if it is not to follow from the budget.
        """
        self._seed = job.seed
        self._fields = job.fields
        self._tables = tables
        self._profiler = TableProfiler(job.fields, job.workers)
        self._next = 0  # the iteration that is profiled next
        self._scoring_seconds = 0.0  # per sample and table
        self._other_seconds = 0.0  # per decision: profiling and allocation

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Profiles, scores as many tables as time allows, at least one, and allocates (Alg. 1)."""
        started = time.perf_counter()
        if problem.iteration >= self._next:  # not again under other workloads
            self._next = problem.iteration + 1
            self._profiler.add(problem.batch)
        tables = self._tables or self._affordable(problem)
        scoring = time.perf_counter()
        scores = problem.engine.affinity(self._profiler.highest(tables) if tables < self._fields else None)
        scored = time.perf_counter()
        assignment = allocate(scores, problem.capacities, self._seed, problem.iteration)
        self._learn(
            (scored - scoring) / (len(problem.batch) * tables), time.perf_counter() - scored + scoring - started
        )
        return Assignment(assignment, score_seconds=scored - started)

    def _affordable(self, problem: DispatchInput) -> int:
        """k: how many tables fit into the time that is left when allocation has had its share."""
        left = problem.seconds_left - self._other_seconds
        table = self._scoring_seconds * len(problem.batch)
        if math.isinf(left) or left >= table * self._fields:
            return self._fields
        return max(1, int(left / table))

    def _learn(self, scoring: float, other: float) -> None:
        first = self._scoring_seconds == 0.0
        weight = 1.0 if first else _SMOOTHING
        self._scoring_seconds += weight * (scoring - self._scoring_seconds)
        self._other_seconds += weight * (other - self._other_seconds)


class TableProfiler:
    """Herald's table profiler (§3.2, §4.3): how worthwhile each embedding table is for scheduling.

    It counts how often every id occurs, field by field, and ranks the fields (tables) by degree of infrequency.

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

    def add(self, batch: SampleBatch) -> None:
        """Counts a batch. The ranking is refreshed whenever the stream has doubled."""
        for field, counts in enumerate(self._counts):
            counts.add(batch.ids_of_feature(field))
        self._samples += len(batch)
        if self._samples >= self._refresh_at:
            self._refresh_at = 2 * self._samples
            self._order = np.argsort(-self.degrees(), kind="stable")

    def degrees(self) -> NDArray[np.float64]:
        """Returns the present DoI of every table, float64 [F], 0..1; 1 for a table without rows."""
        popular = self._samples / self._workers
        return np.array([counts.share_below(popular) for counts in self._counts])

    def highest(self, tables: int) -> NDArray[np.uint32]:
        """Returns the fields that had the highest DoI at the last refresh, uint32 [tables], ascending."""
        return np.sort(self._order[:tables]).astype(np.uint32)


class _Counts:
    """How often each id of one field occurred: a sorted column, and what came in since it was last sorted."""

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
        ids, positions = np.unique(np.concatenate([self._ids, *self._fresh]), return_inverse=True)
        weights = np.concatenate([self._counts, np.ones(self._waiting, np.int64)])
        self._counts = np.bincount(positions, weights, len(ids)).astype(np.int64)
        self._ids = ids
        self._fresh, self._waiting = [], 0
