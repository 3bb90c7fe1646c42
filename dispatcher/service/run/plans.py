"""What one worker is told in an epoch: who trains, what its cache must hold, its plans and flush plans, and the end."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.epoch import Epoch, PlanLog
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.errors import FailedPrecondition, NotFound
from esd.services.domain.plans import EndOfStream, Membership
from esd.services.domain.state import JobPhase
from esd.services.wire.attend import Attendance
from esd.services.wire.plans import encode_plan_message

# A worker reads what it is told at once, and keeps it until its turn comes. So it gets at most this many plans that it
# has not confirmed, however long the job's window is.
_MOST_UNCONFIRMED = 256
_TOGETHER_BYTES = 1 << 16  # of plans in one message, unless one plan has more


def messages_for(job: Job, attendance: Attendance) -> Iterator[bytes | None]:
    """Yields everything that one worker has yet to be told in an epoch, and None whenever the next is not there yet.

    Whoever gets None asks again when something of the job has changed.

    Args:
        job: the job.
        attendance: the worker's lease, and the first plan that it wants.

    Raises:
        NotFound: there is no such lease, or it expired while workers were missing; the job takes no workers any more.
        FailedPrecondition: the first plan that is wanted is confirmed or beyond the next plan; the job failed.
        StaleEpoch: the epoch is over.
        Unavailable: the dispatcher is stopping.
    """
    worker, epoch = yield from _join_epoch(job, attendance.lease_id)
    lifecycle, plans = job.lifecycle, epoch.plans
    yield encode_plan_message(
        Membership(
            epoch.number, worker.slot, job.spec, epoch.members, epoch.first, _peers_of(worker, job, epoch), job.claimant
        )
    )
    iteration = attendance.from_iteration if attendance.epoch == epoch.number else epoch.first
    if epoch.reloads and iteration == epoch.first:
        yield epoch.reloads[worker.slot]
    if not worker.confirmed <= iteration <= plans.planned:
        raise FailedPrecondition(
            f"{worker} asks for plans from iteration {iteration} on; it has confirmed {worker.confirmed} and"
            f" {plans.planned} are planned, so it can start from any between these two"
        )
    yield from _plans_from(iteration, job, epoch, worker)
    if not worker.flushed:
        yield plans.final_flush[worker.slot]
    # The job may finish in an epoch that a restarted worker has just ended.
    while lifecycle.phase is not JobPhase.FINISHED:
        lifecycle.raise_if_failed()
        epoch.raise_if_over()
        yield None
    yield encode_plan_message(EndOfStream(plans.planned))


def _peers_of(worker: WorkerRecord, job: Job, epoch: Epoch) -> tuple[str, ...]:
    """Returns where a worker reaches the others of an epoch, by slot, if rows go directly."""
    if not job.spec.direct:
        return ()
    others = {each.slot: each for each in job.workers if each.slot in epoch.members and each is not worker}
    return tuple(others[slot].registration.address if slot in others else "" for slot in range(job.spec.workers))


def _plans_from(iteration: int, job: Job, epoch: Epoch, worker: WorkerRecord) -> Iterator[bytes | None]:
    """Yields the plans and checkpoint flushes of a worker up to where the stream of samples ends."""
    plans, flush_sent = epoch.plans, worker.flushed_checkpoint
    while True:
        job.lifecycle.raise_if_failed()
        epoch.raise_if_over()
        if iteration in plans.checkpoint_flushes and flush_sent < iteration:
            flush_sent = iteration
            yield plans.checkpoint_flushes[iteration][worker.slot]
        elif iteration < worker.confirmed:
            raise FailedPrecondition(f"{worker} confirmed iteration {iteration}, which this stream did not bring")
        elif iteration < min(plans.planned, worker.confirmed + _MOST_UNCONFIRMED):
            ready = _together(plans, worker, iteration)
            iteration += len(ready)
            yield b"".join(ready)
        elif iteration == plans.planned and job.lifecycle.phase in (JobPhase.FLUSHING, JobPhase.FINISHED):
            return
        else:
            yield None


def _together(plans: PlanLog, worker: WorkerRecord, first: int) -> list[bytes]:
    """Returns the plans that make one message: those that follow `first` without a flush between, while it is small."""
    ready = [plans.get(worker.slot, first).message]
    size = len(ready[0])
    for iteration in range(first + 1, min(plans.planned, worker.confirmed + _MOST_UNCONFIRMED)):
        message = plans.get(worker.slot, iteration).message
        size += len(message)
        if size > _TOGETHER_BYTES or iteration in plans.checkpoint_flushes:
            break
        ready.append(message)
    return ready


def _join_epoch(job: Job, lease_id: str) -> Generator[None, None, tuple[WorkerRecord, Epoch]]:
    """Waits with a worker until it trains in an epoch that goes on; returns the worker and the epoch."""
    while True:
        job.lifecycle.raise_if_failed()
        worker = job.workers.holder(lease_id)
        if job.is_training(worker):
            return worker, job.current_epoch()
        if job.lifecycle.over:
            raise NotFound(f"no job takes workers: {job.lifecycle}")
        worker.waiting = True
        job.lifecycle.notify()
        while worker.waiting and not job.lifecycle.over:
            yield None
            job.lifecycle.raise_if_failed()
