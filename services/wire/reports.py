"""Registrations, leases and reports of workers."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from protos import dispatcher_pb2 as pb
from services.domain.errors import InvalidArgument
from services.domain.reports import (
    FlushReport,
    IterationReport,
    Lease,
    PhaseTimes,
    Registration,
    Report,
    TransferCounts,
    Trouble,
    WorkerPhase,
)
from services.wire.arrays import decode_column, encode_array


def encode_registration(registration: Registration) -> pb.RegisterWorkerRequest:
    """A worker's offer to train."""
    return pb.RegisterWorkerRequest(
        worker=registration.name,
        bandwidth_bytes_per_second=registration.bandwidth,
        cache_rows=registration.cache_rows,
        address=registration.address,
        rendezvous=registration.rendezvous,
    )


def decode_registration(message: pb.RegisterWorkerRequest) -> Registration:
    """Reads a worker's offer to train. Raises InvalidArgument for an empty name or a value out of range."""
    return Registration(
        name=message.worker,
        bandwidth=message.bandwidth_bytes_per_second,
        cache_rows=message.cache_rows,
        address=message.address,
        rendezvous=message.rendezvous,
    )


def encode_lease(lease: Lease) -> pb.Lease:
    """A lease with its heartbeat interval."""
    return pb.Lease(lease_id=lease.lease_id, heartbeat_seconds=lease.heartbeat_seconds)


def decode_lease(message: pb.Lease) -> Lease:
    """Reads a lease with its heartbeat interval."""
    return Lease(message.lease_id, message.heartbeat_seconds)


def encode_report(lease_id: str, report: Report) -> pb.ReportRequest:
    """What one iteration, or the flush, of the lease's worker brought."""
    transfers = encode_transfers(report.transfers)
    if isinstance(report, FlushReport):
        return pb.ReportRequest(
            lease_id=lease_id,
            iteration=report.iteration,
            flushed=True,
            transfers=transfers,
            epoch=report.epoch,
            dense_checksum=report.dense_checksum,
        )
    return pb.ReportRequest(
        lease_id=lease_id,
        iteration=report.iteration,
        loss_sum=report.loss_sum,
        score_bins=encode_array(report.score_bins, np.uint16, "score_bins"),
        labels=encode_array(report.labels, np.uint8, "labels"),
        transfers=transfers,
        phases=encode_phases(report.phases),
        seconds=report.seconds,
        measured_bandwidth=report.measured_bandwidth,
        epoch=report.epoch,
    )


def decode_report(message: pb.ReportRequest) -> Report:
    """Reads a report.

    Raises:
        InvalidArgument: score_bins and labels of unequal or odd length, a label that is neither 0 nor 1, a
            loss, time or bandwidth that is not finite or is negative.
    """
    transfers = decode_transfers(message.transfers)
    if message.flushed:
        return FlushReport(message.iteration, transfers, message.epoch, message.dense_checksum)
    return IterationReport(
        iteration=message.iteration,
        loss_sum=message.loss_sum,
        score_bins=decode_column(message.score_bins, np.uint16, "score_bins"),
        labels=decode_column(message.labels, np.uint8, "labels"),
        transfers=transfers,
        phases=decode_phases(message.phases),
        seconds=message.seconds,
        measured_bandwidth=message.measured_bandwidth,
        epoch=message.epoch,
    )


def encode_heartbeat(
    lease_id: str, trouble: Trouble | None, phase: WorkerPhase = WorkerPhase.IDLE
) -> pb.HeartbeatRequest:
    """A sign of life, perhaps with bad news."""
    if trouble is None:
        return pb.HeartbeatRequest(lease_id=lease_id, phase=phase.name)
    return pb.HeartbeatRequest(lease_id=lease_id, failure=trouble.cause, epoch=trouble.epoch, fatal=trouble.fatal)


def decode_trouble(message: pb.HeartbeatRequest) -> Trouble | None:
    """Reads the bad news of a heartbeat, None if there is none."""
    return Trouble(message.failure, message.epoch, message.fatal) if message.failure else None


def decode_phase(message: pb.HeartbeatRequest) -> WorkerPhase:
    """What the worker is doing. Raises InvalidArgument for a number that has no name."""
    try:
        return WorkerPhase[pb.HeartbeatRequest.Phase.Name(message.phase)]
    except ValueError:
        raise InvalidArgument(f"phase is {message.phase}, it must be in 0..{len(WorkerPhase) - 1}") from None


def encode_transfers(transfers: TransferCounts) -> pb.TransferCounts:
    """Rows by kind of operation, and bytes."""
    return pb.TransferCounts(**{f.name: getattr(transfers, f.name) for f in fields(TransferCounts)})


def decode_transfers(message: pb.TransferCounts) -> TransferCounts:
    """Reads rows by kind of operation, and bytes."""
    return TransferCounts(*(getattr(message, f.name) for f in fields(TransferCounts)))


def encode_phases(phases: PhaseTimes) -> pb.PhaseTimes:
    """Seconds by phase of an iteration."""
    return pb.PhaseTimes(**{f.name: getattr(phases, f.name) for f in fields(PhaseTimes)})


def decode_phases(message: pb.PhaseTimes) -> PhaseTimes:
    """Reads seconds by phase of an iteration."""
    return PhaseTimes(*(getattr(message, f.name) for f in fields(PhaseTimes)))
