"""Adaptive LAIA: scores only the most important tables, as many as the time allows (Herald §4.3)."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision_time import AffordableSteps
from esd.dispatcher.core.mechanisms.laia import allocate, counts_latest
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.dispatcher.core.mechanisms.table_profiler import TableProfiler
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec


class LaiaAdaptive:
    """LAIA on the k tables with the highest degree of infrequency. Without a budget k = F, and it equals LAIA."""

    lookahead = 0

    def __init__(self, job: JobSpec, *, tables: int | None = None) -> None:
        """Starts without measurements.

        Args:
            job: the job; each of its fields counts as a table of its own.
            tables: k; None derives it from the budget.
        """
        self._seed = job.seed
        self._latest = counts_latest(job)
        self._fields = job.fields
        self._tables = tables
        self._profiler = TableProfiler(job.fields, job.workers)
        self._ranking = self._profiler.ranking  # the ranking that decisions use
        self._thread = ThreadPoolExecutor(1, "esd-profiler")
        self._profiling: Future[None] | None = None  # profiles the latest batch, in the thread
        self._next = 0  # the iteration that is profiled next
        self._steps = AffordableSteps()  # a step is a table, its unit a sample; other work: allocation, profiler

    @property
    def infrequency(self) -> NDArray[np.float64]:
        """The DoI of every table in the present ranking, float64 [F]; the same array until the ranking changes."""
        return self._ranking.degrees

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Scores as many tables as time allows, at least one, and allocates (Alg. 1).

        The thread profiles the batch at the same time, so the ranking comes from the batches before it. Only the first
        batch is ranked by its own content.
        """
        started = time.perf_counter()
        if problem.iteration >= self._next:  # balancing assigns a batch several times
            self._next = problem.iteration + 1
            self._profile(problem.batch)
        tables = self._tables or self._steps.choose(problem.time, self._fields, len(problem.batch), least=1)
        scoring = time.perf_counter()
        chosen = self._ranking.highest(tables) if tables < self._fields else None
        scores = problem.engine.affinity(chosen, latest=self._latest)
        scored = time.perf_counter()
        assignment = allocate(scores, problem.capacities, self._seed, problem.iteration)
        other = time.perf_counter() - scored + scoring - started
        self._steps.learn(scored - scoring, len(problem.batch) * tables, other)
        return Assignment(assignment, score_seconds=scored - started)

    def _profile(self, batch: SampleBatch) -> None:
        """Fetches the ranking of the earlier batches, and starts to profile this batch."""
        first = self._profiling is None
        if self._profiling is not None:
            self._profiling.result()
            self._ranking = self._profiler.ranking
        self._profiling = self._thread.submit(self._profiler.add, batch)
        if first:
            self._profiling.result()
            self._ranking = self._profiler.ranking
