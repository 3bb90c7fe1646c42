"""The cost of a stream, added up decision by decision."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.core.decision import Decision
from esd.services.domain.plans import FlushPlan
from esd.services.domain.sync import NO_FIGURES, Figures


@dataclass(frozen=True, slots=True)
class Totals:
    """The cost of a stream. Flushes at checkpoints and at its end count separately from the operations.

    Attributes:
        iterations: number of planned iterations.
        samples: number of samples of these iterations.
        operations: rows moved, per worker and kind.
        initial_pulls: int64 [n], pulls of rows that were never trained.
        moved_bytes: bytes charged for these operations, per worker and kind.
        unsent_bytes: int64 [n], bytes among them that do not cross the links, since workers make initial rows.
        flush_push: int64 [n], rows pushed for checkpoints and at the end of the stream.
        cost_seconds: time of all operations on their links, T_j for a row (ESD eq. 4).
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        overlapped_seconds: the same of the longer one of its link time and its computation, as if all rows moved while
            their workers compute.
        workloads: float64 [n], mean samples of each worker per iteration.
        expected_cost_seconds: sum of the mechanism's own estimates, 0 when it makes none.
        lookups: (row, worker) pairs trained.
        hits: lookups that found the latest version in the worker's cache.
        forgotten_rows: number of rows removed from the table to keep it within its limit.
        expired_rows: number of rows removed from the tables because their time to live is over.
        admitted_rows: number of ids admitted to the tables.
        initial_reads: number of initial rows read, once per iteration, of ids that are not admitted then.
        sync_figures: the figures of the way to synchronise.
        plan_bytes: bytes of all workers' encoded plans.
        plan_seconds: time of these plans on their links, not included in the cost.
        reduced_bytes: int64 [n], bytes that each worker sends to the next to sum the gradients of replicated rows.
        direct_rows: int64 [n], number of update pushes that each worker sends straight to another worker.
        direct_bytes: int64 [n], bytes of these pushes, included in the moved bytes.
        reduced_seconds: time of `reduced_bytes` on the workers' links, not included in the cost.
        decision_median_seconds: median time of one decision, from the batch to its encoded plans.
        decision_p99_seconds: the 99th percentile of that time.
    """

    iterations: int
    samples: int
    operations: Operations
    initial_pulls: NDArray[np.int64]
    moved_bytes: Operations
    unsent_bytes: NDArray[np.int64]
    flush_push: NDArray[np.int64]
    cost_seconds: float
    makespan_seconds: float
    overlapped_seconds: float
    workloads: NDArray[np.float64]
    expected_cost_seconds: float
    lookups: int
    hits: int
    forgotten_rows: int
    expired_rows: int
    admitted_rows: int
    initial_reads: int
    sync_figures: Figures
    plan_bytes: int
    plan_seconds: float
    reduced_bytes: NDArray[np.int64]
    direct_rows: NDArray[np.int64]
    direct_bytes: NDArray[np.int64]
    reduced_seconds: float
    decision_median_seconds: float
    decision_p99_seconds: float

    @property
    def hit_ratio(self) -> float:
        """Hits per lookup, 0 for an empty stream."""
        return self.hits / self.lookups if self.lookups else 0.0


class Tally:
    """Adds up the cost of a stream. Memory grows by 8 bytes per iteration, for its decision time."""

    def __init__(self, workers: int) -> None:
        """Starts with zeros, for n workers."""
        self._samples = self._lookups = self._hits = self._plan_bytes = 0
        self._forgotten_rows = self._expired_rows = self._admitted_rows = self._initial_reads = 0
        self._operations = self._moved_bytes = Operations.none(workers)
        self._workloads = np.zeros(workers)
        self._flushed = self._reduced = self._direct_rows = self._direct_bytes = np.zeros(workers, np.int64)
        self._initial_pulls = self._unsent = self._flushed
        self._cost = self._makespan = self._overlapped = self._expected = 0.0
        self._plan_seconds = self._reduced_seconds = 0.0
        self._sync_figures: Figures = NO_FIGURES
        self._decision_seconds = array("d")

    @property
    def iterations(self) -> int:
        """The number of decisions added."""
        return len(self._decision_seconds)

    def add(self, decision: Decision, seconds: NDArray[np.float64]) -> None:
        """Adds an iteration, with each worker's time in `seconds`, float64 [n]."""
        self._samples += len(decision.assignment)
        self._workloads = self._workloads + decision.workloads
        self._operations += decision.operations
        self._initial_pulls = self._initial_pulls + decision.initial_pulls
        self._moved_bytes += decision.moved_bytes
        self._unsent = self._unsent + decision.unsent_bytes
        self._cost += decision.cost_seconds
        self._makespan += float(seconds.max())
        self._overlapped += float(np.maximum(decision.link_seconds, seconds - decision.link_seconds).max())
        self._expected += decision.expected_cost_seconds
        self._lookups += decision.lookups
        self._hits += decision.hits
        self._forgotten_rows += decision.forgotten_rows
        self._expired_rows += decision.expired_rows
        self._admitted_rows += decision.admitted_rows
        self._initial_reads += decision.initial_reads
        self._sync_figures += decision.sync_figures
        self._plan_bytes += decision.plan_bytes  # before `decision_seconds`, since it encodes the plans
        self._plan_seconds += decision.plan_seconds
        self._reduced = self._reduced + decision.reduced_bytes
        self._reduced_seconds += decision.reduced_seconds
        self._direct_rows = self._direct_rows + decision.direct_rows
        self._direct_bytes = self._direct_bytes + decision.direct_bytes
        self._decision_seconds.append(decision.decision_seconds)

    def flush(self, plans: tuple[FlushPlan, ...]) -> None:
        """Adds a flush, at a checkpoint or at the end."""
        self._flushed = self._flushed + np.array([len(plan.rows) + len(plan.gradients) for plan in plans], np.int64)

    def totals(self) -> Totals:
        """Returns the cost of all iterations and flushes added so far."""
        decisions = self._decision_seconds
        median, p99 = np.quantile(decisions, [0.5, 0.99]) if decisions else (0.0, 0.0)
        return Totals(
            iterations=len(decisions),
            samples=self._samples,
            operations=self._operations,
            initial_pulls=self._initial_pulls,
            moved_bytes=self._moved_bytes,
            unsent_bytes=self._unsent,
            flush_push=self._flushed,
            cost_seconds=self._cost,
            makespan_seconds=self._makespan,
            overlapped_seconds=self._overlapped,
            workloads=self._workloads / max(1, len(decisions)),
            expected_cost_seconds=self._expected,
            lookups=self._lookups,
            hits=self._hits,
            forgotten_rows=self._forgotten_rows,
            expired_rows=self._expired_rows,
            admitted_rows=self._admitted_rows,
            initial_reads=self._initial_reads,
            sync_figures=self._sync_figures,
            plan_bytes=self._plan_bytes,
            plan_seconds=self._plan_seconds,
            reduced_bytes=self._reduced,
            direct_rows=self._direct_rows,
            direct_bytes=self._direct_bytes,
            reduced_seconds=self._reduced_seconds,
            decision_median_seconds=float(median),
            decision_p99_seconds=float(p99),
        )
