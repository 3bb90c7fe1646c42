"""What happens in a job, as metrics."""

from __future__ import annotations

import time
from dataclasses import fields
from functools import partial

from dispatcher.core.decision import Decision
from dispatcher.service.state.phase import Lifecycle
from dispatcher.service.state.totals import Figures
from dispatcher.service.state.workers import Member
from services.domain.jobs import JobSpec
from services.domain.reports import IterationReport, TransferCounts
from services.domain.state import JobPhase
from services.runtime import metrics


def job_created(life: Lifecycle, figures: Figures, lease_seconds: float) -> None:
    """From now on phase, loss and AUC are this job's, computed when somebody looks."""
    for phase in JobPhase:
        metrics.JOB_PHASE.labels(phase.name.lower()).set_function(partial(_is_in, life, phase))
    metrics.HEARTBEAT_AGE.clear()
    metrics.LEASE.set(lease_seconds)
    metrics.LOSS.set_function(lambda: figures.progress.loss)
    metrics.AUC.set_function(lambda: figures.progress.auc)


def seated(life: Lifecycle, member: Member) -> None:
    """A worker has got its slot."""
    metrics.WORKER_BANDWIDTH.labels(member.slot).set(member.registration.bandwidth)
    metrics.LATE_ITERATIONS.labels(member.slot)  # at 0 until it is late: a rate needs a start
    metrics.HEARTBEAT_AGE.labels(member.slot).set_function(lambda: _silence(life, member))


def queued(samples: int, logged: int) -> None:
    """So many samples wait to be planned, and so many are in the log because no checkpoint covers them."""
    metrics.QUEUED_SAMPLES.set(samples)
    metrics.LOGGED_SAMPLES.set(logged)


def planned(job: JobSpec, decision: Decision, encode_seconds: float, window: int, rows: int) -> None:
    """An iteration is planned; `window` of them are not confirmed yet, and the table has so many `rows`."""
    metrics.KNOWN_ROWS.labels(job.table.name).set(rows)
    if job.max_rows:
        metrics.ROW_LIMIT.labels(job.table.name).set(job.max_rows)
        metrics.FORGOTTEN_ROWS.labels(job.table.name).inc(decision.forgotten_rows)
    for phase, seconds in decision.seconds.items():
        metrics.DISPATCH_SECONDS.labels(phase).observe(seconds)
    metrics.DISPATCH_SECONDS.labels("encode").observe(encode_seconds)
    if decision.solver:
        metrics.SOLVER_SECONDS.labels(decision.solver).observe(decision.seconds["assign"])
    if decision.gap is not None:
        certified(decision.solver, decision.gap)
    metrics.TRANSFER_COST.labels(job.mechanism).inc(decision.cost_seconds)
    metrics.CACHE_LOOKUPS.labels("hit", job.table.name).inc(decision.hits)
    metrics.CACHE_LOOKUPS.labels("miss", job.table.name).inc(decision.lookups - decision.hits)
    metrics.DISPATCH_WINDOW.set(window)


def certified(solver: str, gap: float) -> None:
    """An exact assignment was made, with its certificate."""
    metrics.SOLVER_GAP.labels(solver).set(gap)


def shadowed(mechanism: str, seconds: float) -> None:
    """What one more iteration would have cost under another mechanism."""
    metrics.SHADOW_TRANSFER_COST.labels(mechanism).inc(seconds)


def reported(slot: int, report: IterationReport) -> None:
    """A worker has trained an iteration."""
    moved(slot, report.transfers)
    for phase in fields(report.phases):
        metrics.ITERATION_SECONDS.labels(phase.name).observe(getattr(report.phases, phase.name))
    if report.measured_bandwidth:
        metrics.WORKER_BANDWIDTH.labels(slot).set(report.measured_bandwidth)


def moved(slot: int, transfers: TransferCounts) -> None:
    """A worker has moved rows over its link."""
    for operation in ("miss_pull", "update_push", "evict_push", "flush_push"):
        metrics.TRANSFERS.labels(operation, slot).inc(getattr(transfers, operation))
    metrics.TRANSFER_BYTES.labels("pull", slot).inc(transfers.bytes_pulled)
    metrics.TRANSFER_BYTES.labels("push", slot).inc(transfers.bytes_pushed)


def late(slot: int) -> None:
    """A worker holds up an iteration."""
    metrics.LATE_ITERATIONS.labels(slot).inc()


def iteration_confirmed(window: int) -> None:
    """All workers have trained an iteration; `window` planned ones are left."""
    metrics.ITERATIONS.inc()
    metrics.DISPATCH_WINDOW.set(window)


def _is_in(life: Lifecycle, phase: JobPhase) -> float:
    return float(life.phase is phase)


def _silence(life: Lifecycle, member: Member) -> float:
    """Seconds in which a worker that should have been heard of was not."""
    if life.over or member.flushed:
        return 0.0
    return time.monotonic() - member.last_heartbeat  # the event loop's clock; this is not its thread
