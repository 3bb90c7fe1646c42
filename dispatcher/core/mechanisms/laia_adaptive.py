"""Adaptive LAIA: scores only the tables that matter most, as many as the time allows (Herald §4.3)."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.laia import allocate
from dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from dispatcher.core.mechanisms.table_profiler import TableProfiler
from services.domain.batches import SampleBatch
from services.domain.jobs import JobSpec

_SMOOTHING = 0.2


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
        self._ranking = self._profiler.ranking  # what decisions go by
        self._thread = ThreadPoolExecutor(1, "esd-profiler")
        self._profiling: Future[None] | None = None  # of the batches up to the latest
        self._next = 0  # the iteration that is profiled next
        self._scoring_seconds = 0.0  # per sample and table
        self._other_seconds = 0.0  # per decision: allocation, and the wait for the profiler

    @property
    def infrequency(self) -> NDArray[np.float64]:
        """The DoI of every table as decisions know it, float64 [F]; the same array until the tables are ranked anew."""
        return self._ranking.degrees

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Scores as many tables as time allows, at least one, and allocates (Alg. 1).

        The batch is profiled meanwhile and after, so the tables are ranked by those before it; but for the first, they
        are ranked by what it holds itself.
        """
        started = time.perf_counter()
        if problem.iteration >= self._next:  # not again under other workloads
            self._next = problem.iteration + 1
            self._profile(problem.batch)
        tables = self._tables or self._affordable(problem)
        scoring = time.perf_counter()
        scores = problem.engine.affinity(self._ranking.highest(tables) if tables < self._fields else None)
        scored = time.perf_counter()
        assignment = allocate(scores, problem.capacities, self._seed, problem.iteration)
        self._learn(
            (scored - scoring) / (len(problem.batch) * tables), time.perf_counter() - scored + scoring - started
        )
        return Assignment(assignment, score_seconds=scored - started)

    def _profile(self, batch: SampleBatch) -> None:
        """Takes the ranking of the batches before, and lets the profiler go on with this one."""
        first = self._profiling is None
        if self._profiling is not None:
            self._profiling.result()
            self._ranking = self._profiler.ranking
        self._profiling = self._thread.submit(self._profiler.add, batch)
        if first:
            self._profiling.result()
            self._ranking = self._profiler.ranking

    def _affordable(self, problem: DispatchInput) -> int:
        """k: how many tables fit into the time that is left when allocation has had its share."""
        recorded = problem.time.recorded()
        if recorded is not None:
            return recorded
        left = problem.time.seconds_left - self._other_seconds
        table = self._scoring_seconds * len(problem.batch)
        enough = left >= table * self._fields or table == 0
        affordable = self._fields if enough else max(1, int(left / table))
        problem.time.note(affordable)
        return affordable

    def _learn(self, scoring: float, other: float) -> None:
        first = self._scoring_seconds == 0.0
        weight = 1.0 if first else _SMOOTHING
        self._scoring_seconds += weight * (scoring - self._scoring_seconds)
        self._other_seconds += weight * (other - self._other_seconds)
