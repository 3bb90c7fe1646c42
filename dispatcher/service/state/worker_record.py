"""What a job knows of one of its workers: what it has done so far, and when it was last heard of."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from esd.dispatcher.core.feedback import LINK_SMOOTHING
from esd.dispatcher.service.state.manifest import SavedWorker
from esd.services.domain.reports import (
    FlushReport,
    IterationReport,
    PhaseTimes,
    Registration,
    TransferCounts,
    WorkerPhase,
)


@dataclass(slots=True)
class WorkerRecord:
    """What is known of one worker that holds a slot.

    Attributes:
        registration: how the worker introduced itself.
        slot: its slot; it may still change until the slots are settled.
        lease_id: names the worker in all its calls.
        peer: who has got the lease, and is the only one who may call with it.
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
    peer: str
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
