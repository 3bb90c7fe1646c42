"""The state of a job, as Describe tells it."""

from __future__ import annotations

import asyncio

from dispatcher.service.run.job import Job
from dispatcher.service.state.totals import Figures
from dispatcher.service.state.workers import Member
from services.domain.state import JobState, WorkerState


def job_state(job: Job) -> JobState:
    """The job's figures so far."""
    figures = job.figures
    now = asyncio.get_running_loop().time()
    return JobState(
        job=job.spec,
        phase=job.life.phase,
        failure=job.life.failure,
        samples_submitted=job.intake.taken,
        iterations_planned=job.epoch.plans.iterations if job.epoch else 0,
        iterations_confirmed=job.confirmed,
        loss=figures.progress.loss,
        auc=figures.progress.auc,
        workers=tuple(_worker_state(member, figures, now) for member in job.roster.members),
        cost_seconds=figures.cost_seconds,
        makespan_seconds=figures.makespan_seconds,
        expected_cost_seconds=figures.expected_cost_seconds,
        lookups=figures.lookups,
        hits=figures.hits,
        forgotten_rows=figures.forgotten_rows,
        decision_median_seconds=figures.decision_seconds(0.5),
        decision_p99_seconds=figures.decision_seconds(0.99),
        training_seconds=figures.training_seconds,
        shadow_costs=job.shadows.costs,
        epoch=job.epoch.number if job.epoch else 0,
        checkpoint=job.checkpoints.latest.iteration if job.checkpoints else 0,
        recoveries=tuple(job.recoveries),
    )


def _worker_state(member: Member, figures: Figures, now: float) -> WorkerState:
    return WorkerState(
        worker=member.registration.name,
        slot=member.slot,
        bandwidth=member.registration.bandwidth,
        cache_rows=member.registration.cache_rows,
        iterations=member.confirmed,
        transfers=member.transfers,
        phases=member.phases,
        seconds_since_heartbeat=now - member.last_heartbeat,
        address=member.registration.address,
        measured_bandwidth=member.measured_bandwidth,
        workload=int(figures.workloads[member.slot]),
        late_iterations=member.late,
    )
