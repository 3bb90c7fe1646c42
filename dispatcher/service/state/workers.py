"""The workers of a job: places held by leases, and slots by name."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
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

_HEARTBEATS_PER_LEASE = 4  # two may get lost on the way, and the third still comes in time


@dataclass(slots=True)
class Member:
    """One worker.

    Attributes:
        confirmed: iterations it has trained and reported, so also the next one it will report.
        dense_checksum: SHA-256 of the final dense parameters with their optimizer, if it has stored them.
        flushed: it has confirmed the flush plan; from then on it holds nothing that could get lost.
        cut: the latest checkpoint whose flush it has confirmed, -1 before the first.
        waiting: it has asked for the plans of an epoch that has not begun.
        transfers: total over its confirmed iterations and the flush.
        phases: total over its confirmed iterations.
        measured_bandwidth: bytes per second that it reported for its link, smoothed; 0 before the first measurement.
        last_heartbeat: event-loop time.
        phase: what it was doing then.
        late: iterations that it held up.
        late_in: the latest of them, -1 before the first.
    """

    registration: Registration
    slot: int
    lease_id: str
    confirmed: int = 0
    dense_checksum: str = ""
    flushed: bool = False
    cut: int = -1
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
        """As a checkpoint keeps it."""
        known = self.registration
        return SavedWorker(known.name, known.bandwidth, known.cache_rows, self.transfers, self.phases)

    def confirm(self, report: IterationReport) -> None:
        """Counts the next iteration."""
        self.confirmed += 1
        self.transfers += report.transfers
        self.phases += report.phases
        if report.measured_bandwidth:
            before = self.measured_bandwidth or report.measured_bandwidth
            self.measured_bandwidth = before + LINK_SMOOTHING * (report.measured_bandwidth - before)

    def begin_epoch(self, iteration: int, saved: SavedWorker | None) -> None:
        """Starts anew at an iteration, with the totals that it had there."""
        self.confirmed = iteration
        self.cut = iteration or -1
        self.flushed = self.waiting = False
        self.transfers = saved.transfers if saved else TransferCounts()
        self.phases = saved.phases if saved else PhaseTimes()

    def confirm_cut(self, report: FlushReport) -> None:
        """Counts the flush of a checkpoint."""
        self.cut = report.iteration
        self.transfers += report.transfers

    def confirm_flush(self, report: FlushReport) -> None:
        """Counts the flush. From now on the worker may go without loss."""
        self.flushed = True
        self.dense_checksum = report.dense_checksum
        self.transfers += report.transfers
        self.stop_expiry()

    def stop_expiry(self) -> None:
        """From now on the worker need not send heartbeats."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Roster:
    """The n worker slots of one job.

    Args:
        workers: n.
        lease_seconds: a worker that is silent for so long has lost its lease.
        on_expired: called once per lost lease, from the event loop.
        on_replaced: called when a known worker has come back as a new process; without it, none may.
        names: of the workers by slot, when the slots are settled already.

    Attributes:
        seated: whether the slots are settled.
        names: of the workers by slot, once they are.
    """

    def __init__(
        self,
        workers: int,
        lease_seconds: float,
        on_expired: Callable[[Member], None],
        on_replaced: Callable[[Member], None] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._slots: list[Member | None] = [None] * workers
        self._on_replaced = on_replaced
        self.names = list(names)
        self.seated = bool(names)
        self._lease_seconds = lease_seconds
        self._on_expired = on_expired

    @property
    def members(self) -> list[Member]:
        """The workers that are there, by slot."""
        return [member for member in self._slots if member is not None]

    @property
    def complete(self) -> bool:
        """Whether all n workers are there."""
        return None not in self._slots

    def register(self, registration: Registration) -> Lease:
        """Gives a place: the old one to a known name, else a free one.

        The identical registration, sent again, gets the same lease. A known name with new addresses (a restarted
        worker) gets its place with a new lease, and the old lease ends; once the slots are settled, only where the
        job can recover. A name that is new then takes the place of a worker that is gone.

        Raises:
            ResourceExhausted: all slots are taken.
            FailedPrecondition: the job runs, and the name belongs to a worker with other addresses.
        """
        member = next((m for m in self.members if m.registration.name == registration.name), None)
        if member is None:
            member = self._join(registration, self._free_slot(registration.name))
        elif member.registration != registration:
            if self.seated and self._on_replaced is None:
                raise FailedPrecondition(
                    f"{member} is training already, registered from {member.registration.address}; a worker's name is"
                    " unique in the job, and one that was restarted has lost its cache and cannot go on"
                )
            member.stop_expiry()
            member = self._join(registration, member.slot)
            if self.seated and self._on_replaced is not None:
                self._on_replaced(member)
        self.renew(member)
        return Lease(member.lease_id, self._lease_seconds / _HEARTBEATS_PER_LEASE)

    def seat(self) -> None:
        """Settles the slots when all are there: by name, so that they do not depend on who came first."""
        self._slots = sorted(self._slots, key=_natural_name)
        for slot, member in enumerate(self.members):
            member.slot = slot
        self.names = [member.registration.name for member in self.members]
        self.seated = True

    def take_up(self, iteration: int, workers: Sequence[SavedWorker]) -> None:
        """Fills the slots with the workers of a job that is done, which are not expected back."""
        for slot, saved in enumerate(workers):
            away = Registration(saved.name, saved.bandwidth, saved.cache_rows, "away", "away")
            member = self._slots[slot] = Member(away, slot, secrets.token_hex(8))
            member.begin_epoch(iteration, saved)
            member.flushed = True

    def member(self, lease_id: str) -> Member:
        """The holder of a lease. Raises NotFound when there is none, or none any more."""
        for member in self.members:
            if member.lease_id == lease_id:
                return member
        raise NotFound(f"no lease {lease_id!r}: it has expired or was never given; register again")

    def renew(self, member: Member) -> None:
        """Takes a sign of life: the lease ends `lease_seconds` from now."""
        loop = asyncio.get_running_loop()
        member.stop_expiry()
        member.last_heartbeat = loop.time()
        if not member.flushed:
            member.expiry = loop.call_later(self._lease_seconds, self._on_expired, member)

    def remove(self, member: Member) -> None:
        """Frees a worker's slot."""
        member.stop_expiry()
        self._slots[member.slot] = None

    def _free_slot(self, name: str) -> int:
        if self.complete:
            names = ", ".join(member.registration.name for member in self.members)
            raise ResourceExhausted(f"all {len(self._slots)} worker slots of the job are taken, by {names}")
        known = self.names.index(name) if name in self.names else None
        if known is not None and self._slots[known] is None:
            return known
        return self._slots.index(None)

    def _join(self, registration: Registration, slot: int) -> Member:
        member = Member(registration, slot, secrets.token_hex(8))
        self._slots[slot] = member
        if self.seated:
            self.names[slot] = registration.name
        return member


def _natural_name(member: Member | None) -> tuple[list[tuple[int, str]], str]:
    """Sorts worker-2 before worker-10; names that differ in leading zeros only sort as text."""
    name = member.registration.name if member else ""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name
