"""The state of a job, as the call DescribeJob and the page present it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.totals import JobTotals
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.state import JobState, WorkerState


def job_state(job: Job) -> Callable[[], JobState]:
    """Takes a snapshot of a job; the returned function completes it with the figures of the model's quality.

    Call that function in a thread, because the figures of each label take milliseconds.
    """
    totals = job.totals
    figures = totals.progress.figures()
    now = asyncio.get_running_loop().time()
    median, p99 = totals.decision_seconds(0.5, 0.99)
    with_figures: Callable[..., JobState] = partial(
        JobState,
        job=job.spec,
        phase=job.lifecycle.phase,
        failure=job.lifecycle.failure,
        samples_submitted=job.samples.taken,
        iterations_planned=job.epoch.plans.planned if job.epoch else 0,
        iterations_confirmed=job.confirmed,
        workers=tuple(_worker_state(worker, totals, now) for worker in job.workers),
        cost_seconds=totals.cost_seconds,
        makespan_seconds=totals.makespan_seconds,
        expected_cost_seconds=totals.expected_cost_seconds,
        lookups=totals.lookups,
        hits=totals.hits,
        forgotten_rows=totals.forgotten_rows,
        expired_rows=totals.expired_rows,
        admitted_rows=totals.admitted_rows,
        initial_reads=totals.initial_reads,
        dense_drift=totals.progress.dense_drift,
        sync_figures=totals.sync_figures,
        decision_median_seconds=median,
        decision_p99_seconds=p99,
        training_seconds=totals.training_seconds,
        shadow_costs=job.shadows.costs,
        shadows_left_out=job.shadows.left_out,
        epoch=job.epoch.number if job.epoch else 0,
        resumed_from=job.resumed_from,
        checkpoint=job.checkpoints.latest.iteration if job.checkpoints else 0,
        recoveries=tuple(job.recoveries),
        evaluations=job.evaluations.latest,
        standstill=job.standstill.report,
    )
    return lambda: with_figures(
        quality=figures.lifetime,
        recent=figures.recent,
        labels=figures.lifetime_labels,
        recent_labels=figures.recent_labels,
    )


def _worker_state(worker: WorkerRecord, totals: JobTotals, now: float) -> WorkerState:
    return WorkerState(
        worker=worker.registration.name,
        slot=worker.slot,
        bandwidth=worker.registration.bandwidth,
        cache_rows=worker.registration.cache_rows,
        iterations=worker.confirmed,
        transfers=worker.transfers,
        phases=worker.phases,
        seconds_since_heartbeat=now - worker.last_heartbeat,
        address=worker.registration.address,
        measured_bandwidth=worker.measured_bandwidth,
        workload=int(totals.workloads[worker.slot]),
        late_iterations=worker.late,
        held_back=int(totals.held_back[worker.slot]),
        rests=bool(totals.rests[worker.slot]),
    )
