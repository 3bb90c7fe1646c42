"""The reports of workers to their job: phases, failures, trained iterations and flushes.

Every message of a worker renews its lease, even if the message is refused (attend.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from esd.dispatcher.core.grouped_auc import FullWindow
from esd.dispatcher.service.run.checkpointing import checkpoint_flushed
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.service.state.epoch import Epoch
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.reports import FailureReport, FlushReport, IterationReport, Report, WorkerPhase
from esd.services.domain.state import JobPhase


def take_in(job: Job, worker: WorkerRecord, report: WorkerPhase | Report) -> None:
    """Records a report of a worker: its phase, a failure, a trained iteration, or a flush.

    Raises:
        StaleEpoch: the report belongs to an epoch that is over.
        FailedPrecondition: the report is not due.
        InvalidArgument: the report does not fit its plan.
    """
    match report:
        case IterationReport():
            _iteration(job, worker, report)
        case FlushReport():
            _flush(job, worker, report)
        case FailureReport():
            _failure(job, worker, report)
        case WorkerPhase():
            worker.phase = report
            job.stragglers.report(job.training_workers, asyncio.get_running_loop().time())


def _failure(job: Job, worker: WorkerRecord, failure: FailureReport) -> None:
    """Ends the epoch in which a worker failed, or the whole job if another epoch would fail in the same way.

    A failure of an earlier epoch is ignored unless it ends the job.
    """
    cause = f"{worker} cannot go on: {failure.cause}"
    if failure.fatal:
        job.lifecycle.fail(cause)
    elif job.epoch is not None and failure.epoch == job.epoch.number:
        job.end_epoch(cause)


def _iteration(job: Job, worker: WorkerRecord, report: IterationReport) -> None:
    """Confirms an iteration. A report of a confirmed iteration is ignored, so that a worker may repeat it.

    Raises:
        StaleEpoch: the report belongs to an epoch that is over.
        FailedPrecondition: the iteration is not the worker's next one, or it is not planned yet, or the worker does not
            train in the epoch.
        InvalidArgument: the number of samples differs from the plan's, or the number of labels from the job's.
    """
    epoch = _epoch_of(job, worker, report.epoch)
    plans = epoch.plans
    if report.iteration < worker.confirmed:
        return
    if report.iteration > worker.confirmed or report.iteration >= plans.planned:
        raise FailedPrecondition(
            f"{worker} reports iteration {report.iteration}; the next one it has to report is {worker.confirmed},"
            f" and {plans.planned} are planned"
        )
    plan = plans.get(worker.slot, report.iteration)
    if len(report.labels) != plan.samples:
        raise InvalidArgument(
            f"{worker} reports {len(report.labels)} samples of iteration {report.iteration}, its plan has "
            f"{plan.samples}"
        )
    labels = len(job.spec.labels)
    if report.labels.shape[1] != labels:
        raise InvalidArgument(f"{worker} reports {report.labels.shape[1]} labels per sample, the job has {labels}")
    plans.confirm(worker.slot, report.iteration)
    worker.confirm(report)
    job_metrics.reported(worker.slot, report, plan.trace_id)
    job.feedback.add(worker.slot, report)
    if job.totals.add_report(worker.slot, report):
        if filled := job.totals.progress.filled:
            asyncio.get_running_loop().run_in_executor(None, _compute, filled)
        epoch.trained = report.iteration + 1
        job.stragglers.confirmed(epoch.trained, plans.planned, asyncio.get_running_loop().time())
        job_metrics.iteration_confirmed()
        # Workers need not wake: a confirmation sends them nothing. The planning loop wakes, and publishing wakes them.
        job.lifecycle.notify(workers=False)


def _compute(filled: Sequence[FullWindow]) -> None:
    """Computes the figures of full windows, which takes too long for the event loop; the windows keep the results."""
    for window in filled:
        window.figures()


def _flush(job: Job, worker: WorkerRecord, report: FlushReport) -> None:
    """Confirms a flush, for a checkpoint or at the end of the stream. A worker may repeat the report.

    Raises:
        StaleEpoch: the report belongs to an epoch that is over.
        FailedPrecondition: no such flush is planned, or the worker has not reported an iteration before it, or does not
            train in the epoch.
    """
    epoch = _epoch_of(job, worker, report.epoch)
    if report.iteration in epoch.plans.checkpoint_flushes and report.iteration > worker.flushed_checkpoint:
        _check_reported(worker, report)
        worker.confirm_checkpoint_flush(report)
        job_metrics.moved(worker.slot, report.transfers)
        checkpoint_flushed(job, epoch, worker, report)
    elif not report.checkpoint and _is_final(job, worker, report):
        _confirm_final_flush(job, epoch, worker, report)
    # Any other report repeats a flush that was counted before.


def _check_reported(worker: WorkerRecord, report: FlushReport) -> None:
    """Raises FailedPrecondition if the worker has not reported an iteration before the flush."""
    if report.iteration > worker.confirmed:
        raise FailedPrecondition(
            f"{worker} reports the flush of iteration {report.iteration} and reported {worker.confirmed} iterations:"
            " it must report each iteration before the flush that follows it"
        )


def _is_final(job: Job, worker: WorkerRecord, report: FlushReport) -> bool:
    """Returns whether a report is about the final flush, and not a late repetition for a counted checkpoint.

    The iteration alone does not decide it: the stream may end right after a checkpoint, at the same iteration.
    """
    return report.iteration > worker.flushed_checkpoint or job.lifecycle.phase is JobPhase.FLUSHING


def _confirm_final_flush(job: Job, epoch: Epoch, worker: WorkerRecord, report: FlushReport) -> None:
    if worker.flushed:
        return
    if job.lifecycle.phase is not JobPhase.FLUSHING or report.iteration != epoch.plans.planned:
        raise FailedPrecondition(
            f"{worker} reports the flush of iteration {report.iteration}; {job.lifecycle} with"
            f" {epoch.plans.planned} iterations planned"
        )
    _check_reported(worker, report)
    worker.confirm_final_flush(report)
    job_metrics.moved(worker.slot, report.transfers)
    job.lifecycle.notify()


def _epoch_of(job: Job, worker: WorkerRecord, number: int) -> Epoch:
    """Returns the present epoch. Raises unless `number` is its number and the worker is a member."""
    epoch = job.current_epoch()
    epoch.raise_unless_current(number)
    if worker.slot not in epoch.members:
        raise FailedPrecondition(f"{worker} reports to epoch {number}, in which it does not train")
    return epoch
