"""What a job's decisions and reports add up to."""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from dispatcher.core.decision import Decision
from dispatcher.core.progress import Progress
from dispatcher.service.state.history import History, Point
from services.domain.jobs import JobSpec
from services.domain.reports import IterationReport

_RECENT_DECISIONS = 4096
_PLANNED = ("cost_seconds", "makespan_seconds", "expected_cost_seconds", "lookups", "hits", "forgotten_rows")


class Figures:
    """Totals of one job.

    Attributes:
        cost_seconds: sum of T_j over all planned operations (ESD eq. 4).
        makespan_seconds: sum over iterations of the busiest link's time.
        expected_cost_seconds: the mechanism's own estimate.
        lookups: (row, worker) pairs that training needed.
        hits: of these, latest version in the cache.
        forgotten_rows: that leave the table to keep it within its limit.
        worker_lookups: int64 [n], the lookups by worker slot.
        worker_hits: int64 [n], likewise.
        workloads: int32 [n], m_j: samples of each worker in the latest planned iteration.
        progress: loss and AUC of the iterations that all workers have confirmed.
        history: how these totals came about.
    """

    def __init__(self, job: JobSpec) -> None:
        self.cost_seconds = 0.0
        self.makespan_seconds = 0.0
        self.expected_cost_seconds = 0.0
        self.lookups = 0
        self.hits = 0
        self.forgotten_rows = 0
        self.worker_lookups = np.zeros(job.workers, np.int64)
        self.worker_hits = np.zeros(job.workers, np.int64)
        self.workloads = np.array(job.workloads, np.int32)
        self.progress = Progress(job.workers)
        self.history = History()
        self._planned = 0
        self._decision_total = 0.0
        self._decision_seconds: deque[float] = deque(maxlen=_RECENT_DECISIONS)
        self._seconds_before = 0.0
        self._first_plan: float | None = None
        self._last_confirmation: float | None = None

    def planned(self, decision: Decision) -> None:
        """Adds a decision that is about to be published."""
        if self._first_plan is None:
            self._first_plan = time.monotonic()
        self.cost_seconds += decision.cost_seconds
        self.makespan_seconds += decision.makespan_seconds
        self.expected_cost_seconds += decision.expected_cost_seconds
        self.lookups += decision.lookups
        self.hits += decision.hits
        self.forgotten_rows += decision.forgotten_rows
        self.workloads = decision.workloads
        self.worker_lookups += decision.worker_lookups
        self.worker_hits += decision.worker_lookups - decision.operations.miss_pull
        self._planned += 1
        self._decision_total += decision.decision_seconds
        self._decision_seconds.append(decision.decision_seconds)

    def confirmed(self, slot: int, report: IterationReport) -> bool:
        """Adds a worker's report. Returns whether its iteration is confirmed by all workers now."""
        self._last_confirmation = time.monotonic()
        complete = self.progress.add(slot, report)
        if complete and self.history.wants(report.iteration + 1):
            self.history.add(self.point(report.iteration + 1))
        return complete

    def point(self, iterations: int) -> Point:
        """The totals now, when so many iterations are confirmed."""
        return Point(
            iterations=iterations,
            seconds=self.training_seconds,
            samples=self.progress.samples,
            loss=self.progress.loss,
            auc=self.progress.auc,
            planned=self._planned,
            decision_seconds=self._decision_total,
            cost_seconds=self.cost_seconds,
            lookups=self.lookups,
            hits=self.hits,
        )

    def save_planned(self) -> dict[str, float]:
        """The totals of what is planned so far, for `load`."""
        return {name: getattr(self, name) for name in _PLANNED} | {"training_seconds": self.training_seconds}

    def load(self, planned: dict[str, float], progress: bytes | None, workers: int) -> None:
        """Goes back to saved totals and progress, of so many workers now; empty and None: to the beginning."""
        for name in _PLANNED:
            setattr(self, name, type(getattr(self, name))(planned.get(name, 0)))
        self.progress.load(progress, workers)
        if self._first_plan is None:  # another dispatcher's work
            self._seconds_before = planned.get("training_seconds", 0.0)

    def decision_seconds(self, quantile: float) -> float:
        """Quantile of the latest 4096 decision times; 0 before the first."""
        return float(np.quantile(self._decision_seconds, quantile)) if self._decision_seconds else 0.0

    @property
    def training_seconds(self) -> float:
        """First plan published to last confirmation."""
        if self._first_plan is None or self._last_confirmation is None:
            return self._seconds_before
        return self._seconds_before + self._last_confirmation - self._first_plan
