"""A checkpoint within a job: planned between two iterations, flushed by every worker, and committed.

The planning loop publishes the flush plans (`begin_checkpoint`), each worker reports its flush (`checkpoint_flushed`),
and after the last report the commit runs in the background (checkpoint/checkpoints.py). One more checkpoint at the end
of the stream makes the end of the job durable (`commit_end`).
"""

from __future__ import annotations

from collections.abc import Sequence

from esd.dispatcher.core.learned import Snapshot
from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints, PendingCheckpoint
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.epoch import Epoch
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.errors import EsdError, StorageUnwritable
from esd.services.domain.plans import FlushPlan
from esd.services.domain.reports import FlushReport
from esd.services.domain.watched import PlanStage
from esd.services.wire.plans import encode_plan_message

# Samples and pre-images pile up until a checkpoint is committed. After this many failures in a row the job fails,
# before it fills the disk.
_FAILED_CHECKPOINTS = 3


def begin_checkpoint(
    job: Job, checkpoints: Checkpoints, flushes: Sequence[FlushPlan], planner: Snapshot, samples: int
) -> None:
    """Publishes the flush plans of a checkpoint before the next iteration.

    Args:
        job: the job.
        checkpoints: its checkpoints.
        flushes: the flush plans, by slot.
        planner: the snapshot of the planner's state.
        samples: how many samples of the stream come before the checkpoint.
    """
    plans = job.current_epoch().plans
    place = job.samples.place_at(samples)
    checkpoints.begin(PendingCheckpoint(plans.planned, place, job.totals.save_planned(), planner))
    messages = [encode_plan_message(flush) for flush in flushes]
    plans.checkpoint_flushes[plans.planned] = messages
    job.show_plans(PlanStage.CHECKPOINT, plans.planned, messages)
    job.lifecycle.notify()


def checkpoint_flushed(job: Job, epoch: Epoch, worker: WorkerRecord, report: FlushReport) -> None:
    """Counts a worker that has flushed for a checkpoint; after the last one the commit begins."""
    checkpoints = job.checkpoints
    if checkpoints is not None and checkpoints.flushed(report, worker, len(job.training_workers)):
        checkpoints.commit(
            epoch.number,
            job.totals.progress.save(),
            job.feedback.save(report.iteration),
            job.evaluations.latest,
            on_done=lambda over: _commit_ended(job, checkpoints, epoch, over),
        )


async def commit_end(job: Job, checkpoints: Checkpoints, epoch: Epoch, planner: Snapshot) -> None:
    """Makes the end of the job durable before the workers learn of it, since they may leave from then on.

    Raises:
        EsdError: the last checkpoint could not be committed.
    """
    pending = PendingCheckpoint(
        iteration=epoch.plans.planned,
        place=job.samples.place,
        planned=job.totals.save_planned(),
        planner=planner,
        workers={worker.slot: worker.saved for worker in job.training_workers},
        dense_checksum="".join(worker.dense_checksum for worker in job.training_workers),  # one worker stores them
        progress=job.totals.progress.save(),
        feedback=job.feedback.save(epoch.plans.planned),
        evaluations=job.evaluations.latest,
        finished=True,
    )
    await checkpoints.commit_end(pending, epoch.number)


def _commit_ended(job: Job, checkpoints: Checkpoints, epoch: Epoch, over: str) -> None:
    """Releases the samples and flush plans that the latest checkpoint covers, and lets new workers join.

    Args:
        job: the job.
        checkpoints: its checkpoints.
        epoch: the epoch in which the commit began.
        over: why the epoch must end; empty if it continues.
    """
    latest = checkpoints.latest
    epoch.plans.forget_flushes(latest.iteration)
    job.samples.release(latest.samples)
    _fail_if_too_many_failed(job, checkpoints)
    newcomers = [str(worker) for worker in job.workers if not job.is_training(worker)]
    cause = over or (f"{', '.join(newcomers)} joins" if newcomers else "")
    if cause and not epoch.over and epoch is job.epoch:
        job.end_epoch(cause)
    job.lifecycle.notify()


def _fail_if_too_many_failed(job: Job, checkpoints: Checkpoints) -> None:
    """Fails the job after too many failed checkpoints in a row; a full disk first gets `storage_seconds` to recover."""
    failures = checkpoints.failures
    if len(failures) < _FAILED_CHECKPOINTS:
        return
    (began, _), (ended, cause) = failures[0], failures[-1]
    if isinstance(cause, StorageUnwritable) and ended - began < job.settings.storage_seconds:
        return
    text = str(cause) if isinstance(cause, EsdError) else "internal error; the dispatcher's log has the details"
    job.fail(f"{len(failures)} checkpoints in a row could not be committed, the latest because {text}")
