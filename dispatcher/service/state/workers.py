"""The workers of a job: who holds which slot, for how long their leases last, and what each has done so far."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dispatcher.core.feedback import LINK_SMOOTHING
from dispatcher.service.state.manifest import SavedWorker
from services.domain.errors import FailedPrecondition, NotFound, ResourceExhausted
from services.domain.reports import (
    FlushReport,
    IterationReport,
    Lease,
    PhaseTimes,
    Registration,
    TransferCounts,
    WorkerPhase,
)
from services.domain.worker_set import WorkerSet

_HEARTBEATS_PER_LEASE = 4  # two may get lost on the way, and the third still comes in time


@dataclass(slots=True)
class WorkerRecord:
    """What is known of one worker that holds a slot.

    Attributes:
        registration: how the worker introduced itself.
        slot: its slot; it may still change until the slots are settled.
        lease_id: names the worker in all its calls.
        confirmed: how many iterations it has trained and reported, so also the next one that it will report.
        flushed_checkpoint: the latest checkpoint whose flush it has confirmed; -1 before the first.
        flushed: whether it has confirmed the final flush. From then on it holds nothing that could get lost.
        dense_checksum: SHA-256 of the final dense parameters with their optimizer, if this worker has stored them.
        waiting: whether it has asked for the plans of an epoch that has not begun.
        transfers: the rows that it has moved for its confirmed iterations and flushes.
        phases: the times of its confirmed iterations.
        measured_bandwidth: bytes per second that it reported for its link, smoothed; 0 before the first measurement.
        last_heartbeat: when it was last heard of, on the event loop's clock.
        phase: what it was doing then.
        late: how many iterations it has held up.
        late_in: the latest of them; -1 before the first.
        expiry: ends the lease; None while the worker need not be heard of.
    """

    registration: Registration
    slot: int
    lease_id: str
    confirmed: int = 0
    flushed_checkpoint: int = -1
    flushed: bool = False
    dense_checksum: str = ""
    waiting: bool = False
    transfers: TransferCounts = field(default_factory=TransferCounts)
    phases: PhaseTimes = field(default_factory=PhaseTimes)
    measured_bandwidth: float = 0.0
    last_heartbeat: float = 0.0
    phase: WorkerPhase = WorkerPhase.IDLE
    late: int = 0
    late_in: int = -1
    expiry: asyncio.TimerHandle | None = None

    def __str__(self) -> str:
        return f"worker {self.registration.name} (slot {self.slot})"

    @property
    def saved(self) -> SavedWorker:
        """The worker as a checkpoint keeps it."""
        known = self.registration
        return SavedWorker(known.name, known.bandwidth, known.cache_rows, self.transfers, self.phases)

    def confirm(self, report: IterationReport) -> None:
        """Counts the next iteration, which the worker has trained."""
        self.confirmed += 1
        self.transfers += report.transfers
        self.phases += report.phases
        if report.measured_bandwidth:
            before = self.measured_bandwidth or report.measured_bandwidth
            self.measured_bandwidth = before + LINK_SMOOTHING * (report.measured_bandwidth - before)

    def confirm_checkpoint_flush(self, report: FlushReport) -> None:
        """Counts the flush before a checkpoint."""
        self.flushed_checkpoint = report.iteration
        self.transfers += report.transfers

    def confirm_final_flush(self, report: FlushReport) -> None:
        """Counts the flush at the end of the stream. From now on the worker may go without loss."""
        self.flushed = True
        self.dense_checksum = report.dense_checksum
        self.transfers += report.transfers
        self.stop_expiry()

    def rewind_to(self, iteration: int, saved: SavedWorker | None) -> None:
        """Goes back to a checkpoint, named by its iteration, with the totals that the worker had there."""
        self.confirmed = iteration
        self.flushed_checkpoint = iteration or -1
        self.flushed = False
        self.transfers = saved.transfers if saved else TransferCounts()
        self.phases = saved.phases if saved else PhaseTimes()

    def stop_expiry(self) -> None:
        """Lets the lease last: from now on the worker need not send heartbeats."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Workers:
    """The n worker slots of one job. Iteration gives the workers that are there, by slot.

    Args:
        slots: n.
        lease_seconds: a worker that is silent for this long has lost its lease.
        on_expired: called from the event loop when a lease is lost, once for each.
        replaceable: whether a worker may come back as a new process once the slots are settled.
        names: the workers' names by slot, when an earlier dispatcher has settled the slots; else empty.

    Attributes:
        settled: whether the slots are settled: from then on a worker keeps its slot for the whole job.
        names: the workers' names by slot, once they are settled.
    """

    def __init__(
        self,
        slots: int,
        lease_seconds: float,
        on_expired: Callable[[WorkerRecord], None],
        *,
        replaceable: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self._slots: list[WorkerRecord | None] = [None] * slots
        self._lease_seconds = lease_seconds
        self._on_expired = on_expired
        self._replaceable = replaceable
        self.names = list(names)
        self.settled = bool(names)

    def __iter__(self) -> Iterator[WorkerRecord]:
        return (worker for worker in self._slots if worker is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def complete(self) -> bool:
        """Whether all n workers are there."""
        return None not in self._slots

    @property
    def waiting(self) -> WorkerSet:
        """The slots whose workers wait for an epoch to begin."""
        return WorkerSet.of(worker.slot for worker in self if worker.waiting)

    def register(self, registration: Registration) -> tuple[Lease, WorkerRecord | None]:
        """Gives a slot to a worker: the old one to a known name, otherwise a free one.

        The same registration, sent again, gets the same lease. A known name with new addresses is a worker that was
        restarted: it gets its slot with a new lease, and the old lease ends. Once the slots are settled, this is
        possible only where workers are replaceable, and a new name takes the slot of a worker that is gone.

        Returns:
            The lease, and the worker if it has come back as a new process to a slot that was settled.

        Raises:
            ResourceExhausted: all slots are taken.
            FailedPrecondition: the name belongs to another worker, which cannot be replaced.
        """
        worker = next((known for known in self if known.registration.name == registration.name), None)
        restarted = None
        if worker is None:
            worker = self._take_slot(registration, self._free_slot(registration.name))
        elif worker.registration != registration:
            if self.settled and not self._replaceable:
                raise FailedPrecondition(
                    f"{worker} is training already, registered from {worker.registration.address}; a worker's name is"
                    " unique in the job, and one that was restarted has lost its cache and cannot go on"
                )
            self.remove(worker)
            worker = self._take_slot(registration, worker.slot)
            restarted = worker if self.settled else None
        self.renew(worker)
        return Lease(worker.lease_id, self._lease_seconds / _HEARTBEATS_PER_LEASE), restarted

    def settle_slots(self) -> None:
        """Gives the slots out by name once all workers are there, so that they do not depend on who came first."""
        self._slots = sorted(self._slots, key=_natural_name)
        for slot, worker in enumerate(self):
            worker.slot = slot
        self.names = [worker.registration.name for worker in self]
        self.settled = True

    def holder(self, lease_id: str) -> WorkerRecord:
        """Returns the worker that holds a lease. Raises NotFound when nobody does, or nobody does any more."""
        for worker in self:
            if worker.lease_id == lease_id:
                return worker
        raise NotFound(f"no lease {lease_id!r}: it has expired or was never given; register again")

    def renew(self, worker: WorkerRecord) -> None:
        """Takes a sign of life: the lease ends `lease_seconds` from now."""
        loop = asyncio.get_running_loop()
        worker.stop_expiry()
        worker.last_heartbeat = loop.time()
        if not worker.flushed:
            worker.expiry = loop.call_later(self._lease_seconds, self._on_expired, worker)

    def remove(self, worker: WorkerRecord) -> None:
        """Frees a worker's slot and ends its lease."""
        worker.stop_expiry()
        worker.waiting = False
        self._slots[worker.slot] = None

    def stop_waiting(self) -> None:
        """Notes that the epoch has begun for which workers waited."""
        for worker in self:
            worker.waiting = False

    def rewind_to(self, iteration: int, saved: Sequence[SavedWorker]) -> None:
        """Takes all workers back to a checkpoint, with the totals in `saved`, by slot; empty starts them at 0."""
        for worker in self:
            worker.rewind_to(iteration, saved[worker.slot] if saved else None)

    def fill_with(self, iteration: int, saved: Sequence[SavedWorker]) -> None:
        """Fills the slots with the workers of a job that is done, none of which is expected to come back."""
        for slot, known in enumerate(saved):
            away = Registration(known.name, known.bandwidth, known.cache_rows, "away", "away")
            worker = self._slots[slot] = WorkerRecord(away, slot, secrets.token_hex(8))
            worker.rewind_to(iteration, known)
            worker.flushed = True

    def _free_slot(self, name: str) -> int:
        if self.complete:
            names = ", ".join(worker.registration.name for worker in self)
            raise ResourceExhausted(f"all {len(self._slots)} worker slots of the job are taken, by {names}")
        known = self.names.index(name) if name in self.names else None
        if known is not None and self._slots[known] is None:
            return known
        return self._slots.index(None)

    def _take_slot(self, registration: Registration, slot: int) -> WorkerRecord:
        worker = WorkerRecord(registration, slot, secrets.token_hex(8))
        self._slots[slot] = worker
        if self.settled:
            self.names[slot] = registration.name
        return worker


def _natural_name(worker: WorkerRecord | None) -> tuple[list[tuple[int, str]], str]:
    """Sorts worker-2 before worker-10; names that differ in leading zeros only sort as text."""
    name = worker.registration.name if worker else ""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name
