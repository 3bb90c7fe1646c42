"""The plan stream of one worker: who trains, what its cache must hold, its plans and flush plans, and the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dispatcher.service.run.job import Job
from dispatcher.service.state.epoch import Epoch
from dispatcher.service.state.lifecycle import Lifecycle
from dispatcher.service.state.worker_record import WorkerRecord
from protos import dispatcher_pb2 as pb
from services.domain.errors import FailedPrecondition, NotFound
from services.domain.plans import EndOfStream, Membership
from services.domain.state import JobPhase
from services.wire.plans import encode_plan_message


async def watch_plans(
    job: Job, lease_id: str, from_iteration: int, epoch_number: int = 0
) -> AsyncGenerator[pb.WatchPlansResponse]:
    """Tells one worker everything that it has yet to do: membership, plans, flush plans, the end of the stream.

    Args:
        job: the job.
        lease_id: the lease of the worker.
        from_iteration: the first plan that the worker wants; it counts only while `epoch_number` is the present epoch,
            otherwise the plans begin with the epoch.
        epoch_number: the epoch that the worker was in before.

    Raises:
        NotFound: there is no such lease, or it expired while workers were missing; the job takes no workers any more.
        FailedPrecondition: `from_iteration` is confirmed or beyond the next plan; the job failed.
        StaleEpoch: the epoch ended while its plans were sent.
    """
    worker, epoch = await _join_epoch(job, lease_id)
    lifecycle, plans = job.lifecycle, epoch.plans
    yield encode_plan_message(_membership(job, worker, epoch))
    if epoch_number != epoch.number:
        from_iteration = epoch.first
    if epoch.reloads and from_iteration == epoch.first:
        yield epoch.reloads[worker.slot]

    if not worker.confirmed <= from_iteration <= plans.planned:
        raise FailedPrecondition(
            f"{worker} asks for plans from iteration {from_iteration} on; it has confirmed {worker.confirmed} and"
            f" {plans.planned} are planned, so it can start from any between these two"
        )
    cursor = _PlanCursor(lifecycle, epoch, worker, from_iteration)
    while (plan := await cursor.next()) is not None:
        yield plan

    if not worker.flushed:
        yield plans.final_flush[worker.slot]
    # The job may finish in an epoch that a restarted worker has just ended.
    await lifecycle.wait_until(lambda: lifecycle.phase is JobPhase.FINISHED or epoch.over)
    if lifecycle.phase is not JobPhase.FINISHED:
        epoch.raise_if_over()
    yield encode_plan_message(EndOfStream(plans.planned))


class _PlanCursor:
    """How far one worker has come in the plans of an epoch: the plan or checkpoint flush that it gets next."""

    def __init__(self, lifecycle: Lifecycle, epoch: Epoch, worker: WorkerRecord, iteration: int) -> None:
        self._lifecycle = lifecycle
        self._epoch = epoch
        self._plans = epoch.plans
        self._worker = worker
        self._iteration = iteration
        self._flush_sent = worker.flushed_checkpoint

    async def next(self) -> pb.WatchPlansResponse | None:
        """Waits for what comes next and returns it; None when the stream of samples ends there.

        Raises:
            StaleEpoch: the epoch is over.
            FailedPrecondition: another stream has brought the worker the plan, and it has confirmed it; the job failed.
        """
        await self._lifecycle.wait_until(self._has_next_or_ends, during=self._epoch)
        iteration, slot = self._iteration, self._worker.slot
        if self._flush_is_next:
            self._flush_sent = iteration
            return self._plans.checkpoint_flushes[iteration][slot]
        if iteration == self._plans.planned:
            return None
        if iteration < self._worker.confirmed:
            raise FailedPrecondition(f"{self._worker} confirmed iteration {iteration}, which this stream did not bring")
        self._iteration += 1
        return self._plans.get(slot, iteration).message

    @property
    def _flush_is_next(self) -> bool:
        return self._iteration in self._plans.checkpoint_flushes and self._flush_sent < self._iteration

    def _has_next_or_ends(self) -> bool:
        return (
            self._iteration < self._plans.planned
            or self._flush_is_next
            or self._lifecycle.phase in (JobPhase.FLUSHING, JobPhase.FINISHED)
        )


async def _join_epoch(job: Job, lease_id: str) -> tuple[WorkerRecord, Epoch]:
    """Waits with a worker until it trains in an epoch that goes on."""
    while True:
        job.lifecycle.raise_if_failed()
        worker = job.workers.holder(lease_id)
        if job.is_training(worker):
            return worker, job.current_epoch()
        if job.lifecycle.over:
            raise NotFound(f"no job takes workers: {job.lifecycle}")
        await _wait_for_epoch(job, worker)


async def _wait_for_epoch(job: Job, worker: WorkerRecord) -> None:
    """Lets the job know that a worker waits, until an epoch begins, the worker loses its lease, or the job is over."""
    worker.waiting = True
    job.lifecycle.notify()
    await job.lifecycle.wait_until(lambda: not worker.waiting or job.lifecycle.over)


def _membership(job: Job, worker: WorkerRecord, epoch: Epoch) -> Membership:
    return Membership(epoch.number, worker.slot, job.spec, epoch.members, epoch.first)
