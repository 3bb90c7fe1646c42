"""The metrics of a job: gauges read its state at a scrape, and each event has a function that counts it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.samples import SampleQueue
from esd.dispatcher.service.state.totals import JobTotals
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import LINK_DIRECTIONS, LINK_KINDS, PHASES, IterationReport, TransferCounts
from esd.services.domain.state import Evaluation, JobPhase, Quality
from esd.services.domain.sync import FlushedAhead, Staleness
from esd.services.runtime import metrics, quality_metrics


def show_job(
    labels: Sequence[str],
    lifecycle: Lifecycle,
    totals: JobTotals,
    samples: SampleQueue,
    logged: Callable[[], int],
    unconfirmed: Callable[[], int],
    standstill: Callable[[], float],
    plan_history_bytes: Callable[[], int],
    lease_seconds: float,
) -> None:
    """Shows a new job from now on. Its figures are computed at every scrape.

    Args:
        labels: the names of the job's labels.
        lifecycle: the phase of the job.
        totals: the figures of the job's model.
        samples: the samples of the job that wait to be planned.
        logged: returns the number of samples in the sample log, which no checkpoint covers.
        unconfirmed: returns the number of planned iterations that are not confirmed.
        standstill: returns the seconds for which the job has made no progress although samples wait.
        plan_history_bytes: returns the length of the plans that are kept for observers.
        lease_seconds: the longest silence of a worker.
    """
    for phase in JobPhase:
        metrics.JOB_PHASE.labels(phase.name.lower()).set_function(partial(_is_in, lifecycle, phase))
    for gauge in (metrics.HEARTBEAT_AGE, metrics.RESTS, metrics.PART_WAIT_SECONDS, metrics.PART_WAITING_BYTES):
        gauge.clear()
    _child(metrics.REFUSED_MESSAGES, "FAILED_PRECONDITION")  # a series at 0, since a rate needs a start
    metrics.LEASE.set(lease_seconds)
    _show_figures(quality_metrics.TRAINED, labels, lambda label: totals.progress.figures().lifetime_of(label))
    _show_figures(quality_metrics.RECENT, labels, lambda label: totals.progress.figures().recent_of(label))
    for gauge in quality_metrics.HELD_OUT.values():
        gauge.clear()
    quality_metrics.HELD_OUT_ITERATION.set(0)
    metrics.QUEUED_SAMPLES.set_function(lambda: samples.pending)
    metrics.LOGGED_SAMPLES.set_function(logged)
    metrics.SOURCE_LAG.set_function(lambda: math.nan if samples.lag is None else samples.lag)
    metrics.DISPATCH_WINDOW.set_function(unconfirmed)
    metrics.STANDSTILL.set_function(standstill)
    metrics.PLAN_HISTORY.set_function(plan_history_bytes)


def show_part(part: int, awaited: Callable[[], float], waiting_bytes: Callable[[], int]) -> None:
    """Shows a part of a stream with several submitters from now on, by functions that return its metrics."""
    metrics.PART_WAIT_SECONDS.labels(part).set_function(awaited)
    metrics.PART_WAITING_BYTES.labels(part).set_function(waiting_bytes)


def show_worker(lifecycle: Lifecycle, totals: JobTotals, worker: WorkerRecord) -> None:
    """Shows a worker in its slot from now on."""
    slot = worker.slot
    metrics.WORKER_BANDWIDTH.labels(slot).set(worker.registration.bandwidth)
    for counter in (metrics.LATE_ITERATIONS, metrics.RETURNS):
        counter.labels(slot)  # a series at 0, since a rate needs a start
    metrics.RESTS.labels(slot).set_function(lambda: float(not lifecycle.over and totals.rests[slot]))
    metrics.HEARTBEAT_AGE.labels(slot).set_function(lambda: _silence(lifecycle, worker))


def planned(job: JobSpec, decision: Decision, rows: int, *, late: bool) -> None:
    """Counts a planned iteration.

    Args:
        job: the job of the iteration.
        decision: the decision on the iteration.
        rows: the number of rows of the job's tables that the planner knows.
        late: whether the workers had to wait for the plan.
    """
    if late:
        metrics.LATE_DECISIONS.inc()
    metrics.DECISION_BUDGET.set(decision.budget_seconds)
    _count_rows(job, decision, rows)
    for slot in np.flatnonzero(decision.roles == DenseRole.RETURNS).tolist():
        _child(metrics.RETURNS, slot).inc()
    for phase, seconds in decision.seconds.items():
        _child(metrics.DISPATCH_SECONDS, phase).observe(seconds)
    metrics.PLAN_BYTES.inc(decision.plan_bytes)
    figures = decision.sync_figures
    if isinstance(figures, Staleness):
        metrics.MISSING_UPDATES.observe_all(figures.reads, figures.missing_updates)
    elif isinstance(figures, FlushedAhead):
        metrics.FLUSHED_AHEAD.inc(figures.rows)
    if decision.solver:
        _child(metrics.SOLVER_SECONDS, decision.solver).observe(decision.seconds["assign"])
    if decision.gap is not None:
        certified(decision.solver, decision.gap)
    _child(metrics.TRANSFER_COST, job.mechanism).inc(decision.cost_seconds)
    counts = decision.columns.table_counts.sum(axis=2)
    for table, lookups, hits in zip(job.tables, counts[:, 5].tolist(), counts[:, 6].tolist(), strict=True):
        _child(metrics.CACHE_LOOKUPS, "hit", table.name).inc(hits)
        _child(metrics.CACHE_LOOKUPS, "miss", table.name).inc(lookups - hits)


def _count_rows(job: JobSpec, decision: Decision, rows: int) -> None:
    """Counts the rows that the planner knows, and those that come into the tables and leave them."""
    _child(metrics.KNOWN_ROWS, job.table.name).set(rows)
    if job.max_rows:
        _child(metrics.ROW_LIMIT, job.table.name).set(job.max_rows)
        _child(metrics.FORGOTTEN_ROWS, job.table.name).inc(decision.forgotten_rows)
    if any(job.row_ttls):
        _child(metrics.EXPIRED_ROWS, job.table.name).inc(decision.expired_rows)
    if decision.admitted is not None:
        _child(metrics.ADMISSION, job.table.name, "admitted").inc(decision.admitted_rows)
        _child(metrics.ADMISSION, job.table.name, "initial_read").inc(decision.initial_reads)
        metrics.ADMISSION_ERROR.set(decision.admitted.error)


def ranked(planner: Planner, shown: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Shows the degree of infrequency of each feature, unless the planner's array is still the one in `shown`.

    Returns:
        The degrees shown now, float64 [F]; None if the mechanism does not know them.
    """
    degrees = planner.infrequency
    if degrees is not None and degrees is not shown:
        for feature, degree in zip(planner.job.features, degrees.tolist(), strict=True):
            _child(metrics.INFREQUENCY, feature.name).set(degree)
    return degrees


def held_back(slot: int, samples: int) -> None:
    """Shows the samples for whose rows a worker's cache has room, if that limits its workload; 0 if it does not."""
    _child(metrics.HELD_BACK, slot).set(samples)


def certified(solver: str, gap: float) -> None:
    """Shows the certificate of an exact assignment: its cost lies at most `gap` above the optimum."""
    _child(metrics.SOLVER_GAP, solver).set(gap)


def shadowed(mechanism: str, seconds: float) -> None:
    """Adds the cost of one iteration under a shadow mechanism, in seconds."""
    _child(metrics.SHADOW_TRANSFER_COST, mechanism).inc(seconds)


def refused(code: str) -> None:
    """Counts a message of a worker that was refused."""
    _child(metrics.REFUSED_MESSAGES, code).inc()


def reported(slot: int, report: IterationReport, trace_id: str) -> None:
    """Counts the transfers and the phase times in a worker's report of a trained iteration.

    Args:
        slot: of the worker.
        report: its report.
        trace_id: of the iteration's trace, an example of such times; empty unless it is traced.
    """
    moved(slot, report.transfers)
    example = {"trace_id": trace_id} if trace_id else None
    for histogram, seconds in zip(_iteration_phases(), report.phases, strict=True):
        histogram.observe(seconds, example)
    if report.measured_bandwidth:
        _child(metrics.WORKER_BANDWIDTH, slot).set(report.measured_bandwidth)


def moved(slot: int, transfers: TransferCounts) -> None:
    """Counts the rows that a worker has moved over its link."""
    for counter, count in zip(_moved_by(slot), transfers, strict=True):
        if count:  # most are 0
            counter.inc(count)


def evaluated(labels: Sequence[str], evaluation: Evaluation) -> None:
    """Shows the quality of the model on held-out samples, label by label."""
    for label, quality in zip(labels, evaluation.labels, strict=True):
        for figure, gauge in quality_metrics.HELD_OUT.items():
            gauge.labels(label).set(getattr(quality, figure))
    quality_metrics.HELD_OUT_ITERATION.set(evaluation.iteration)


def late(slot: int) -> None:
    """Counts an iteration that a worker holds up."""
    _child(metrics.LATE_ITERATIONS, slot).inc()


def iteration_confirmed() -> None:
    """Counts an iteration that all workers have trained."""
    metrics.ITERATIONS.inc()


@cache
def _child(metric: Any, *labels: object) -> Any:
    """Returns the child of a metric for some labels. It is cached because the look-up takes longer than counting."""
    return metric.labels(*labels)


@cache
def _iteration_phases() -> Sequence[Any]:
    return [metrics.ITERATION_SECONDS.labels(phase) for phase in PHASES]


@cache
def _moved_by(slot: int) -> Sequence[Any]:
    """Returns the counters for the fields of a worker's TransferCounts, in their order."""
    return [
        *(metrics.TRANSFERS.labels(kind, slot) for kind in ("miss_pull", "update_push", "evict_push", "flush_push")),
        *(metrics.TRANSFER_BYTES.labels(operation, slot) for operation in ("pull", "push", "reduce")),
        metrics.DIRECT_ROWS.labels(slot),
        metrics.DIRECT_BYTES.labels(slot),
        *(metrics.LINK_BYTES.labels(f"{kind}_{end}", slot) for kind in LINK_KINDS for end in LINK_DIRECTIONS),
        metrics.INITIAL_PULLS.labels(slot),
    ]


def _show_figures(
    gauges: quality_metrics.FigureGauges, labels: Sequence[str], quality_of: Callable[[int], Quality]
) -> None:
    """Makes each gauge read its figure at a scrape, label by label."""
    for figure, gauge in gauges.items():
        gauge.clear()
        for number, label in enumerate(labels):
            gauge.labels(label).set_function(partial(_figure, quality_of, number, figure))


def _figure(quality_of: Callable[[int], Quality], label: int, figure: str) -> float:
    return float(getattr(quality_of(label), figure))


def _is_in(lifecycle: Lifecycle, phase: JobPhase) -> float:
    return float(lifecycle.phase is phase)


def _silence(lifecycle: Lifecycle, worker: WorkerRecord) -> float:
    """Returns the seconds since a worker's last message; 0 if the worker need not send heartbeats any more."""
    if lifecycle.over or worker.flushed:
        return 0.0
    return time.monotonic() - worker.last_heartbeat  # the event loop's clock, read from another thread
