"""The JSON document of a job, from which the page draws itself."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

from esd.dispatcher.service.describe import job_state
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.run.moves import moves_of
from esd.dispatcher.service.state.plan_history import KeptPlans
from esd.dispatcher.service.state.totals import Point
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.dense_sums import Every
from esd.services.domain.mechanisms import mechanism_text
from esd.services.domain.state import JobState, ShadowCost
from esd.services.domain.sync import Bounded, Staleness
from esd.services.domain.sync.bounded import MOST_UPDATES

_DIGITS = 12  # of a number: the page takes differences of totals, of which a few digits would leave nothing


async def state_document(job: Job | None) -> bytes:
    """Returns the latest job in UTF-8 JSON; `{"job": null}` before the first. NaN and infinity become null."""
    if job is None:
        return _json({"job": None})
    # Both snapshots are taken here, at one moment; the thread computes figures and writes JSON, which take long.
    return await asyncio.to_thread(_whole, _present(job), job_state(job), job.plan_history.latest)


def _whole(present: dict[str, Any], state: Callable[[], JobState], plans: KeptPlans | None) -> bytes:
    shown = None if plans is None else moves_of(plans, ids=False).as_json()
    return _json(present | _described(state()) | {"plans": shown})


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(_plain(document), allow_nan=False, separators=(",", ":")).encode()


def _present(job: Job) -> dict[str, Any]:
    """Returns the fields that must be read in the event loop, because the job changes them."""
    totals = job.totals
    now = asyncio.get_running_loop().time()
    return {
        "job": {
            "name": job.spec.name,
            "phase": job.lifecycle.phase.value,
            "failure": job.lifecycle.failure,
            "mechanism": job.spec.mechanism,
            "model": job.spec.model.name,
            "workers": job.spec.workers,
            "dense_sum": str(job.spec.dense_sum),
            "first_iteration": job.spec.first_iteration,
            "batch_size": job.spec.batch_size,
            "window": job.spec.window,
            "row_bytes": job.spec.table.row_bytes,
        },
        "samples": totals.progress.samples,
        "plan_bytes_per_iteration": totals.plan_bytes_per_iteration,
        "plan_seconds_per_iteration": totals.plan_seconds_per_iteration,
        "reduced_seconds_per_iteration": totals.reduced_seconds_per_iteration,
        "workers": [_worker(worker, job, now) for worker in job.workers],
        "history": _columns(totals.course()),
    }


def _described(state: JobState) -> dict[str, Any]:
    """Returns the fields that the call DescribeJob returns as well."""
    return {
        "iterations_planned": state.iterations_planned,
        "iterations_confirmed": state.iterations_confirmed,
        "checkpoint": state.checkpoint if state.job.takes_checkpoints else None,
        "recoveries": len(state.recoveries),
        "training_seconds": state.training_seconds,
        "quality": asdict(state.quality),
        "recent": asdict(state.recent),
        "labels": state.job.labels,
        "quality_by_label": [asdict(each) for each in state.labels],
        "recent_by_label": [asdict(each) for each in state.recent_labels],
        "evaluations": [asdict(each) for each in state.evaluations],
        "forgotten_rows": state.forgotten_rows if state.job.forgets_rows else None,
        "expired_rows": state.expired_rows if any(state.job.row_ttls) else None,
        "admitted_rows": state.admitted_rows if state.job.admit_afters else None,
        "initial_reads": state.initial_reads if state.job.admit_afters else None,
        "dense_drift": state.dense_drift if isinstance(state.job.dense_sum, Every) else None,
        "hit_ratio": _ratio(state.hits, state.lookups),
        "decision_median_seconds": state.decision_median_seconds,
        "decision_p99_seconds": state.decision_p99_seconds,
        "staleness": _staleness(state),
        "costs": _costs(state),
    }


def _costs(state: JobState) -> list[dict[str, Any]]:
    """Returns the cost of the planned iterations, first under the job's mechanism and then under its shadows."""
    planned = max(0, state.iterations_planned - state.job.first_iteration)
    mechanism = mechanism_text(state.job.mechanism, state.job.mechanism_options)
    own = ShadowCost(mechanism, planned, state.cost_seconds)
    return [
        {
            "mechanism": cost.mechanism,
            "shadow": cost is not own,
            "iterations": cost.iterations,
            "seconds": cost.cost_seconds,
        }
        for cost in (own, *state.shadow_costs)
    ]


def _staleness(state: JobState) -> dict[str, Any] | None:
    """Returns the staleness of the rows that training reads, and its bounds; None where no copy may be stale."""
    sync, figures = state.job.sync, state.sync_figures
    if not isinstance(sync, Bounded):
        return None
    bounds = {"pull_bound": sync.pull, "push_bound": sync.push}
    return {"most_updates": MOST_UPDATES, **asdict(Staleness() + figures), **bounds}


def _worker(worker: WorkerRecord, job: Job, now: float) -> dict[str, Any]:
    slot, totals = worker.slot, job.totals
    return {
        "name": worker.registration.name,
        "slot": slot,
        "address": worker.registration.address,
        "bandwidth_bytes_per_second": worker.registration.bandwidth,
        "measured_bandwidth_bytes_per_second": worker.measured_bandwidth or None,
        "workload": int(totals.workloads[slot]),
        "rests": bool(totals.rests[slot]),
        "cache_rows": worker.registration.cache_rows,
        "lease_age_seconds": None if worker.flushed else now - worker.last_heartbeat,
        "lease_seconds": job.settings.lease_seconds,
        # Of this job, as its transfers and phases are.
        "iterations": max(0, worker.confirmed - job.spec.first_iteration),
        "late_iterations": worker.late,
        "held_back": int(totals.held_back[slot]) or None,
        "hit_ratio": _ratio(int(totals.worker_hits[slot]), int(totals.worker_lookups[slot])),
        "transfers": worker.transfers._asdict(),
        "phases": worker.phases._asdict(),
    }


def _columns(points: list[Point]) -> dict[str, list[Any]]:
    """Returns points as columns, which take a third of the space of one object per point."""
    return {field.name: [getattr(point, field.name) for point in points] for field in fields(Point)}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
