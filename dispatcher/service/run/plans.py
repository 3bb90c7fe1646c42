"""The messages to one worker in an epoch: membership, the reload of its cache, plans, flush plans, end of stream."""

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

# A worker reads its plans at once and keeps each until its iteration. This bounds the worker's memory, however long the
# job's window is.
_MOST_UNCONFIRMED = 256
_TOGETHER_BYTES = 1 << 16  # most bytes of plans in one message; a longer plan gets a message of its own


def messages_for(job: Job, attendance: Attendance) -> Iterator[bytes | None]:
    """Yields the outstanding messages to one worker in an epoch, and None whenever the next is not ready yet.

    After None the caller waits for a change of the job before it asks again.

    Args:
        job: the job.
        attendance: the worker's lease, and the first plan that it asks for.

    Raises:
        NotFound: the lease is unknown, or it expired while workers were missing, or the job takes no workers any more.
        FailedPrecondition: the first plan that the worker asks for is confirmed, or lies beyond the next plan; or the
            job failed.
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
    # Before the phase is FINISHED a restarted worker may still end the epoch; afterwards the end of the epoch no longer
    # matters, and must not keep the end of the stream from this worker.
    while lifecycle.phase is not JobPhase.FINISHED:
        lifecycle.raise_if_failed()
        epoch.raise_if_over()
        yield None
    yield encode_plan_message(EndOfStream(plans.planned))


def _peers_of(worker: WorkerRecord, job: Job, epoch: Epoch) -> tuple[str, ...]:
    """Returns the addresses of the other members of an epoch, by slot; empty unless workers exchange rows directly."""
    if not job.spec.sync.delivers:
        return ()
    others = {each.slot: each for each in job.workers if each.slot in epoch.members and each is not worker}
    return tuple(others[slot].registration.address if slot in others else "" for slot in range(job.spec.workers))


def _plans_from(iteration: int, job: Job, epoch: Epoch, worker: WorkerRecord) -> Iterator[bytes | None]:
    """Yields the plans and checkpoint flushes of a worker up to the end of the sample stream."""
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
    """Returns the plans for one message: from `first` on, up to the next flush, while they stay below 64 KiB."""
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
    """Yields None until the worker is a member of a running epoch; returns the worker and the epoch."""
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
