"""The worker slots of a job and the leases on them: the holder of each slot, and the end of its lease."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Sequence

from esd.dispatcher.service.state.manifest import SavedWorker
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.errors import FailedPrecondition, NotFound, PermissionDenied, ResourceExhausted
from esd.services.domain.reports import Lease, Registration
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.caller import present_caller

_HEARTBEATS_PER_LEASE = 4  # two may get lost, and the third still arrives in time


class Workers:
    """The n worker slots of one job. Iteration yields the registered workers, by slot.

    Args:
        slots: n.
        lease_seconds: a worker that is silent for this long loses its lease.
        on_expired: called from the event loop, once for each lease that expires.
        replaceable: whether a worker may come back as a new process once the slots are settled.
        names: the workers' names by slot, if an earlier dispatcher has settled the slots; else empty.
        sites: the site that the worker of each slot must be at, by slot; empty: at any.

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
        sites: Sequence[str] = (),
    ) -> None:
        self._slots: list[WorkerRecord | None] = [None] * slots
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = lease_seconds / _HEARTBEATS_PER_LEASE
        self._on_expired = on_expired
        self._replaceable = replaceable
        self._sites = tuple(sites)
        self.names = list(names)
        self.settled = bool(names)

    def __iter__(self) -> Iterator[WorkerRecord]:
        return (worker for worker in self._slots if worker is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def complete(self) -> bool:
        """Whether all n workers are registered."""
        return None not in self._slots

    @property
    def waiting(self) -> WorkerSet:
        """The slots whose workers wait for an epoch to begin."""
        return WorkerSet.of(worker.slot for worker in self if worker.waiting)

    def register(self, registration: Registration) -> tuple[Lease, WorkerRecord | None]:
        """Gives a slot to a worker: a known name gets its old slot, a new name a free slot.

        A repeated registration gets the same lease again. A known name with a changed registration is a restarted
        worker: it gets its slot with a new lease, and the old lease ends. Once the slots are settled, this requires
        `replaceable`, and a new name takes the slot of a worker that is gone.

        Returns:
            The lease, and the worker if it has come back as a new process to a settled slot; else None.

        Raises:
            ResourceExhausted: all slots are taken, or all of the worker's site.
            FailedPrecondition: the job has no slot for workers of this site; or the name belongs to another worker,
                which cannot be replaced.
            PermissionDenied: another caller holds a lease under the name, and this caller is known by certificate or
                token, or has sent the same registration.
        """
        worker = next((known for known in self if known.registration.name == registration.name), None)
        restarted = None
        if worker is not None and (present_caller().proven or worker.registration == registration):
            _check_peer(worker)
        if worker is None:
            worker = self._take_slot(registration, self._free_slot(registration))
        elif worker.registration != registration:
            if self.settled and not self._replaceable:
                raise FailedPrecondition(
                    f"{worker} is training already, registered from {worker.registration.address}; a worker's name is"
                    " unique in the job, and one that was restarted has lost its cache and cannot go on"
                )
            if self._sites and registration.site != self._sites[worker.slot]:
                raise FailedPrecondition(
                    f"{worker} is at site {registration.site!r} now, its slot is of site {self._sites[worker.slot]!r}: "
                    "give a worker of another site another name"
                )
            self.remove(worker)
            worker = self._take_slot(registration, worker.slot)
            restarted = worker if self.settled else None
        self.renew(worker)
        return Lease(worker.lease_id, self._heartbeat_seconds), restarted

    def settle_slots(self) -> None:
        """Orders the slots by name once all workers are registered, so that the order of arrival does not matter.

        Where slots are of sites, the workers of each site are ordered in its slots.
        """
        of_site: dict[str, Iterator[WorkerRecord | None]] = {}
        for site in self._sites or ("",):
            here = [each for each, at in zip(self._slots, self._sites_of_slots, strict=True) if at == site]
            of_site[site] = iter(sorted(here, key=_natural_name))
        self._slots = [next(of_site[site]) for site in self._sites_of_slots]
        for slot, worker in enumerate(self):
            worker.slot = slot
        self.names = [worker.registration.name for worker in self]
        self.settled = True

    def holder(self, lease_id: str) -> WorkerRecord:
        """Returns the worker that holds a lease, after a check that the present call comes from it.

        Raises:
            NotFound: the lease is unknown or has expired.
            PermissionDenied: the call comes from another caller than the holder.
        """
        for worker in self:
            if worker.lease_id == lease_id:
                _check_peer(worker)
                return worker
        raise NotFound(f"no lease {lease_id!r}: it has expired or was never given; register again")

    def renew(self, worker: WorkerRecord) -> None:
        """Extends a lease to `lease_seconds` from now, because of a message of its worker."""
        worker.last_heartbeat = asyncio.get_running_loop().time()
        if worker.flushed:
            worker.stop_expiry()
        elif worker.expiry is None:
            self._look_after(self._heartbeat_seconds, worker)

    def _look_after(self, seconds: float, worker: WorkerRecord) -> None:
        """Sets the one timer of a lease. Renewals, which are frequent, do not touch it; `_look` sees their time."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        worker.expiry = loop.call_at(due, self._look, worker, due)

    def _look(self, worker: WorkerRecord, due: float) -> None:
        """Ends an overdue lease; otherwise sets the timer for the next look.

        A timer that fires late means that this process stood still, as on a suspended machine. It could not read
        heartbeats then, and workers on the same machine could not send any. So the delay is added to the last
        heartbeat, and does not count as silence.
        """
        now = asyncio.get_running_loop().time()
        worker.last_heartbeat = min(now, worker.last_heartbeat + now - due)
        left = worker.last_heartbeat + self._lease_seconds - now
        if left > 0:
            self._look_after(min(left, self._heartbeat_seconds), worker)
        else:
            worker.expiry = None
            self._on_expired(worker)

    def remove(self, worker: WorkerRecord) -> None:
        """Frees a worker's slot and ends its lease."""
        worker.stop_expiry()
        worker.waiting = False
        self._slots[worker.slot] = None

    def stop_waiting(self) -> None:
        """Marks all workers as not waiting, since their epoch has begun."""
        for worker in self:
            worker.waiting = False

    def rewind_to(self, iteration: int, saved: Sequence[SavedWorker]) -> None:
        """Resets all workers to a checkpoint, with the totals in `saved`, by slot; an empty `saved` means zeros."""
        for worker in self:
            worker.rewind_to(iteration, saved[worker.slot] if saved else None)

    def fill_with(self, iteration: int, saved: Sequence[SavedWorker]) -> None:
        """Has the workers of a finished job in the slots, for display; none of them is expected to come back.

        They may be more or fewer than a job asks for that is created with the same table afterwards.
        """
        self._slots = [None] * len(saved)
        for slot, known in enumerate(saved):
            away = Registration(known.name, known.bandwidth, known.cache_rows, "away", "away")
            worker = self._slots[slot] = WorkerRecord(away, slot, secrets.token_hex(8), "nobody")
            worker.rewind_to(iteration, known)
            worker.flushed = True

    @property
    def _sites_of_slots(self) -> tuple[str, ...]:
        return self._sites or ("",) * len(self._slots)

    @property
    def absent_sites(self) -> list[str]:
        """The sites without a worker that waits for an epoch to begin: an epoch could not train their samples."""
        waiting = {site for slot, site in enumerate(self._sites) if slot in self.waiting}
        return [site for site in dict.fromkeys(self._sites) if site not in waiting]

    def _free_slot(self, registration: Registration) -> int:
        name = registration.name
        if self._sites:
            return self._free_slot_at(registration.site, name)
        if self.complete:
            names = ", ".join(worker.registration.name for worker in self)
            raise ResourceExhausted(f"all {len(self._slots)} worker slots of the job are taken, by {names}")
        known = self.names.index(name) if name in self.names else None
        if known is not None and self._slots[known] is None:
            return known
        return self._slots.index(None)

    def _free_slot_at(self, site: str, name: str) -> int:
        slots = [slot for slot, at in enumerate(self._sites) if at == site]
        if not slots:
            sites = ", ".join(map(repr, dict.fromkeys(self._sites)))
            raise FailedPrecondition(
                f"worker {name} is {f'at site {site!r}' if site else 'at no site'}, and samples of the job stay at "
                f"theirs, {sites}: set its ESD_WORKER_SITE, or name its site in --sites"
            )
        free = [slot for slot in slots if self._slots[slot] is None]
        if not free:
            names = ", ".join(str(self._slots[slot]) for slot in slots)
            raise ResourceExhausted(f"all {len(slots)} worker slots of site {site!r} are taken, by {names} (--sites)")
        known = self.names.index(name) if name in self.names else None
        return known if known in free else free[0]

    def _take_slot(self, registration: Registration, slot: int) -> WorkerRecord:
        worker = WorkerRecord(registration, slot, secrets.token_hex(8), present_caller().identity)
        self._slots[slot] = worker
        if self.settled:
            self.names[slot] = registration.name
        return worker


def _check_peer(worker: WorkerRecord) -> None:
    """Raises PermissionDenied unless the present call comes from the peer that received the worker's lease."""
    caller = present_caller().identity
    if caller != worker.peer:
        raise PermissionDenied(
            f"the lease of {worker} belongs to {worker.peer}, and this call comes from {caller}; a worker must use "
            "the lease from its own registration, and a name is free for another worker when its lease has ended"
        )


def _natural_name(worker: WorkerRecord | None) -> tuple[list[tuple[int, str]], str]:
    """Returns a sort key with worker-2 before worker-10; names that differ only in leading zeros sort as text."""
    name = worker.registration.name if worker else ""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name
