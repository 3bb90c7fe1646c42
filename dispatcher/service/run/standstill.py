"""The watch for standstill: a job whose samples wait while nothing is trained is reported, and fails in the end.

Leases do not notice it: a worker whose forward hangs sends its heartbeats all the same.
"""

from __future__ import annotations

import asyncio
import logging

from esd.dispatcher.service.run.job import Job
from esd.services.domain.state import JobPhase

_TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)


async def watch_for_standstill(job: Job) -> None:
    """Reports a standstill after `standstill_warning_seconds`, and fails the job after `standstill_seconds`.

    A job stands still while it has samples to train, or rows to flush, and neither an iteration is confirmed nor a
    flush or a checkpoint completed. Between two epochs other limits hold: `join_seconds` for workers, and
    `recovery_seconds` for parameter servers. A part of the stream that holds the others up is reported, too; whether
    the job fails by it, abandoned.py decides.
    """
    try:
        await _watch(job)
    finally:
        job.standstill.clear()


async def _watch(job: Job) -> None:
    settings, standstill = job.settings, job.standstill
    tick = min(_TICK_SECONDS, settings.standstill_warning_seconds / 2, settings.standstill_seconds / 2)
    clock = asyncio.get_running_loop().time
    progress = _progress(job)
    while not job.lifecycle.over:
        before = clock()
        await asyncio.sleep(tick)
        if progress != (progress := _progress(job)) or not _has_work(job):
            reported = standstill.report
            standstill.clear()
            standstill.report = _awaited(job)
            if standstill.report not in ("", reported):
                _log.warning("%s", standstill.report)
            continue
        standstill.add(min(clock() - before, 2 * tick))  # a dispatcher that was suspended has watched nothing meanwhile
        if standstill.seconds >= settings.standstill_seconds:
            limit = settings.variable("standstill_seconds")
            job.fail(f"{_cause(job)} for {standstill.seconds:.0f} s (the limit is {limit})")
        elif standstill.seconds >= settings.standstill_warning_seconds:
            if not standstill.report:
                _log.warning("%s for %.0f s", _cause(job), standstill.seconds)
            standstill.report = _cause(job)


def _progress(job: Job) -> tuple[object, ...]:
    """Returns the figures of a job that change whenever it comes nearer to its end."""
    epoch, workers = job.epoch, job.training_workers
    return (
        job.lifecycle.phase,
        None if epoch is None else (epoch.number, epoch.trained),
        [(worker.flushed_checkpoint, worker.flushed) for worker in workers],
        None if job.checkpoints is None else (job.checkpoints.latest.iteration, job.checkpoints.idle),
    )


def _has_work(job: Job) -> bool:
    trains = job.lifecycle.phase in (JobPhase.RUNNING, JobPhase.FLUSHING)
    return trains and job.epoch is not None and not job.waits_for_samples(job.epoch)


def _awaited(job: Job) -> str:
    """Names the part for whose samples the other parts of the stream have waited for long; empty if there is none."""
    submission = job.submission
    if job.spec.submitters == 1 or submission.awaited(submission.turn) < job.settings.standstill_warning_seconds:
        return ""
    fed = submission.feeds[submission.turn].fed
    whose = "whose submitter sends none" if fed else "which nobody submits"
    return f"the job waits for samples of part {submission.turn} of its stream, {whose}"


def _cause(job: Job) -> str:
    """Names the cause of the standstill: workers with their phases, or the dispatcher."""
    epoch = job.current_epoch()
    if epoch.unconfirmed:
        what = f"iteration {epoch.trained} is not trained"
        late = [worker for worker in job.training_workers if worker.confirmed <= epoch.trained]
    elif job.lifecycle.phase is JobPhase.FLUSHING:
        what = "the end of the stream is not flushed"
        late = [worker for worker in job.training_workers if not worker.flushed]
    elif job.checkpoints is not None and not job.checkpoints.idle:
        checkpoint = max(epoch.plans.checkpoint_flushes, default=epoch.plans.planned)
        what = f"checkpoint {checkpoint} is not committed"
        late = [worker for worker in job.training_workers if worker.flushed_checkpoint < checkpoint]
    else:
        what, late = f"iteration {epoch.plans.planned} is not planned", []
    named = ", ".join(f"{worker} in phase {worker.phase.value}" for worker in late)
    return f"the job stands still: {what}, it waits for {named or 'the dispatcher'}"
