"""A job as the JSON document behind the page."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict, fields
from typing import Any

from dispatcher.service.describe import job_state
from dispatcher.service.run.job import Job
from dispatcher.service.state.history import Point
from dispatcher.service.state.totals import Figures
from dispatcher.service.state.workers import Member
from services.domain.state import JobState, ShadowCost


def state_document(job: Job | None) -> bytes:
    """The latest job in UTF-8 JSON; `{"job": null}` before the first. Numbers that JSON lacks (NaN) become null."""
    document = {"job": None} if job is None else _document(job)
    return json.dumps(_plain(document), allow_nan=False, separators=(",", ":")).encode()


def _document(job: Job) -> dict[str, Any]:
    state, figures = job_state(job), job.figures
    now = asyncio.get_running_loop().time()
    return {
        "job": {
            "name": job.spec.name,
            "phase": state.phase.value,
            "failure": state.failure,
            "mechanism": job.spec.mechanism,
            "model": job.spec.model.name,
            "workers": job.spec.workers,
            "batch_size": job.spec.batch_size,
            "window": job.spec.window,
            "row_bytes": job.spec.table.row_bytes,
        },
        "iterations_planned": state.iterations_planned,
        "iterations_confirmed": state.iterations_confirmed,
        "samples": figures.progress.samples,
        "training_seconds": state.training_seconds,
        "loss": state.loss,
        "auc": state.auc,
        "hit_ratio": _ratio(state.hits, state.lookups),
        "decision_median_seconds": state.decision_median_seconds,
        "decision_p99_seconds": state.decision_p99_seconds,
        "costs": _costs(state),
        "workers": [_worker(member, figures, job.lease_seconds, now) for member in job.roster.members],
        "history": _columns([*figures.history.points, figures.point(state.iterations_confirmed)]),
    }


def _costs(state: JobState) -> list[dict[str, Any]]:
    """Transmission cost of the planned iterations: of the plans in force first."""
    own = ShadowCost(state.job.mechanism, state.iterations_planned, state.cost_seconds)
    return [
        {
            "mechanism": cost.mechanism,
            "shadow": cost is not own,
            "iterations": cost.iterations,
            "seconds": cost.cost_seconds,
        }
        for cost in (own, *state.shadow_costs)
    ]


def _worker(member: Member, figures: Figures, lease_seconds: float, now: float) -> dict[str, Any]:
    slot = member.slot
    return {
        "name": member.registration.name,
        "slot": slot,
        "address": member.registration.address,
        "link_bytes_per_second": member.registration.bandwidth,
        "measured_bytes_per_second": member.measured_bandwidth or None,
        "workload": int(figures.workloads[slot]),
        "cache_rows": member.registration.cache_rows,
        "lease_age_seconds": None if member.flushed else now - member.last_heartbeat,
        "lease_seconds": lease_seconds,
        "iterations": member.confirmed,
        "late_iterations": member.late,
        "hit_ratio": _ratio(int(figures.worker_hits[slot]), int(figures.worker_lookups[slot])),
        "transfers": asdict(member.transfers),
        "phases": asdict(member.phases),
    }


def _columns(points: list[Point]) -> dict[str, list[Any]]:
    """Points as columns, which take a third of the space."""
    return {field.name: [getattr(point, field.name) for point in points] for field in fields(Point)}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
