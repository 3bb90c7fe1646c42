"""Adds up decisions."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations, flush_pushes
from dispatcher.core.planner import Decision
from dispatcher.simulator.totals import Totals
from services.domain.plans import FlushPlan


class Tally:
    """What a stream has cost so far. Memory does not grow but for 8 bytes per iteration, its decision time."""

    def __init__(self, workers: int) -> None:
        """Starts at nothing, for n workers."""
        self._samples = self._lookups = self._hits = self._forgotten_rows = 0
        self._operations = self._moved_bytes = Operations.none(workers)
        self._workloads = np.zeros(workers)
        self._flushed = np.zeros(workers, np.int64)
        self._cost = self._makespan = self._expected = 0.0
        self._decision_seconds = array("d")

    @property
    def iterations(self) -> int:
        """Decisions added."""
        return len(self._decision_seconds)

    def add(self, decision: Decision, seconds: NDArray[np.float64]) -> None:
        """Adds an iteration that takes each worker so many seconds, float64 [n]."""
        self._samples += len(decision.assignment)
        self._workloads = self._workloads + decision.workloads
        self._operations += decision.operations
        self._moved_bytes += decision.moved_bytes
        self._cost += decision.cost_seconds
        self._makespan += float(seconds.max())
        self._expected += decision.expected_cost_seconds
        self._lookups += decision.lookups
        self._hits += decision.hits
        self._forgotten_rows += decision.forgotten_rows
        self._decision_seconds.append(decision.decision_seconds)

    def flush(self, plans: tuple[FlushPlan, ...]) -> None:
        """Adds a flush, at a checkpoint or at the end."""
        self._flushed = self._flushed + flush_pushes(plans)

    def totals(self) -> Totals:
        """The sums."""
        decisions = self._decision_seconds
        median, p99 = np.quantile(decisions, [0.5, 0.99]) if decisions else (0.0, 0.0)
        return Totals(
            iterations=len(decisions),
            samples=self._samples,
            operations=self._operations,
            moved_bytes=self._moved_bytes,
            flush_push=self._flushed,
            cost_seconds=self._cost,
            makespan_seconds=self._makespan,
            workloads=self._workloads / max(1, len(decisions)),
            expected_cost_seconds=self._expected,
            lookups=self._lookups,
            hits=self._hits,
            forgotten_rows=self._forgotten_rows,
            decision_median_seconds=float(median),
            decision_p99_seconds=float(p99),
        )
