"""A job's record of one worker: its confirmed work, and the time of its last message."""

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
    """The record of a worker that holds a slot.

    Attributes:
        registration: the registration that the worker sent.
        slot: its slot; it may still change until the slots are settled.
        lease_id: identifies the worker in all its calls.
        peer: the caller that received the lease; calls with the lease from any other caller are refused.
        confirmed: the number of iterations that it has trained and reported, which is also its next iteration.
        flushed_checkpoint: the latest checkpoint whose flush it has confirmed; -1 before the first.
        flushed: whether it has confirmed the final flush. From then on its loss costs no updates.
        dense_checksum: SHA-256 of the final dense parameters with their optimizer, if this worker has stored them.
        waiting: whether it has asked for the plans of an epoch that has not begun.
        transfers: the rows that it has moved for its confirmed iterations and flushes.
        phases: the times of its confirmed iterations.
        measured_bandwidth: bytes per second that it reported for its link, smoothed; 0 before the first measurement.
        last_heartbeat: the time of its last message, on the event loop's clock.
        phase: its phase at its last report.
        late: the number of iterations that it has held up.
        late_in: the latest iteration that it has held up; -1 before the first.
        expiry: the timer of the lease; None while the worker need not send heartbeats.
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
        """The worker's entry in a checkpoint."""
        known = self.registration
        return SavedWorker(known.name, known.bandwidth, known.cache_rows, self.transfers, self.phases)

    def confirm(self, report: IterationReport) -> None:
        """Records the worker's report of its next iteration."""
        self.confirmed += 1
        self.transfers += report.transfers
        self.phases += report.phases
        if report.measured_bandwidth:
            before = self.measured_bandwidth or report.measured_bandwidth
            self.measured_bandwidth = before + LINK_SMOOTHING * (report.measured_bandwidth - before)

    def confirm_checkpoint_flush(self, report: FlushReport) -> None:
        """Records the flush before a checkpoint."""
        self.flushed_checkpoint = report.iteration
        self.transfers += report.transfers

    def confirm_final_flush(self, report: FlushReport) -> None:
        """Records the flush at the end of the stream. From now on the worker may leave without loss."""
        self.flushed = True
        self.dense_checksum = report.dense_checksum
        self.transfers += report.transfers
        self.stop_expiry()

    def rewind_to(self, iteration: int, saved: SavedWorker | None) -> None:
        """Resets the record to the checkpoint before an iteration; the totals are 0 if `saved` is None."""
        self.confirmed = iteration
        self.flushed_checkpoint = iteration or -1
        self.flushed = False
        self.transfers = saved.transfers if saved else TransferCounts()
        self.phases = saved.phases if saved else PhaseTimes()

    def stop_expiry(self) -> None:
        """Stops the timer of the lease: from now on the worker need not send heartbeats."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None
