"""Registrations, leases and reports of workers, between esd.services.domain.reports and the contract."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.reports import (
    PHASES,
    TRANSFERS,
    FailureReport,
    FlushReport,
    IterationReport,
    Lease,
    PhaseTimes,
    Registration,
    TransferCounts,
    WorkerPhase,
)
from esd.services.wire.arrays import decode_column, encode_array
from esd.services.wire.enums import EnumCodec

LONGEST_WAIT_SECONDS = 60.0  # longest wait of a registration for a job that takes workers

_LONGEST_FAILURE = 1000  # characters
_MOST = 2**64 - 1  # largest count on the wire

# The fields of a message, in the order of the domain's type.
_counts_of = attrgetter(*TRANSFERS)
_times_of = attrgetter(*PHASES)

_PHASES = EnumCodec(WorkerPhase, pb.WorkerPhase, "WORKER_PHASE_", "phase", unspecified=WorkerPhase.IDLE)


def encode_registration(registration: Registration, wait_seconds: float = 0.0) -> pb.RegisterWorkerRequest:
    """Encodes a worker's registration, and the seconds for which the dispatcher may wait for a job."""
    return pb.RegisterWorkerRequest(
        worker=registration.name,
        bandwidth_bytes_per_second=registration.bandwidth,
        cache_rows=registration.cache_rows,
        address=registration.address,
        instance=registration.instance,
        least_samples=registration.least_samples,
        most_samples=registration.most_samples,
        lan_bytes_per_second=registration.lan or 0.0,
        site=registration.site,
        may_rest=registration.may_rest,
        wait_seconds=wait_seconds,
    )


def decode_registration(message: pb.RegisterWorkerRequest) -> Registration:
    """Decodes a worker's registration. Raises InvalidArgument for an empty name or a value out of range."""
    return Registration(
        name=message.worker,
        bandwidth=message.bandwidth_bytes_per_second,
        cache_rows=message.cache_rows,
        address=message.address,
        instance=message.instance,
        least_samples=message.least_samples,
        most_samples=message.most_samples,
        lan=message.lan_bytes_per_second or None,
        site=message.site,
        may_rest=message.may_rest,
    )


def decode_wait(message: pb.RegisterWorkerRequest) -> float:
    """Decodes the seconds for which the dispatcher may wait for a job. Raises InvalidArgument above the limit."""
    if not 0 <= message.wait_seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidArgument(f"wait_seconds is {message.wait_seconds}, it must be in 0..{LONGEST_WAIT_SECONDS:g}")
    return message.wait_seconds


def encode_lease(lease: Lease) -> pb.RegisterWorkerResponse:
    """Encodes a lease with its heartbeat interval."""
    return pb.RegisterWorkerResponse(lease_id=lease.lease_id, heartbeat_seconds=lease.heartbeat_seconds)


def decode_lease(message: pb.RegisterWorkerResponse) -> Lease:
    """Decodes a lease with its heartbeat interval."""
    return Lease(message.lease_id, message.heartbeat_seconds)


def encode_phase(phase: WorkerPhase) -> pb.WorkerPhase:
    """Encodes a worker's phase."""
    number: pb.WorkerPhase = _PHASES.encode(phase)
    return number


def decode_phase(number: int) -> WorkerPhase:
    """Decodes a worker's phase. Raises InvalidArgument for an unknown number."""
    return _PHASES.decode(number)


def encode_iteration_report(report: IterationReport) -> pb.IterationReport:
    """Encodes a worker's report of one iteration."""
    return pb.IterationReport(
        epoch=report.epoch,
        iteration=report.iteration,
        loss_sum=report.loss_sum,
        score_bins=encode_array(report.score_bins, np.uint16, "score_bins"),
        labels=encode_array(report.labels, np.uint8, "labels"),
        transfers=encode_transfers(report.transfers),
        phases=encode_phases(report.phases),
        seconds=report.seconds,
        measured_bandwidth_bytes_per_second=report.measured_bandwidth,
        labels_per_sample=0 if report.labels.shape[1] == 1 else report.labels.shape[1],
        groups=b"" if report.groups is None else encode_array(report.groups, np.uint64, "groups"),
        label_loss_sums=report.label_loss_sums,
        drift=report.drift,
    )


def decode_iteration_report(message: pb.IterationReport) -> IterationReport:
    """Decodes a worker's report of one iteration.

    Raises:
        InvalidArgument: score_bins and labels differ in length, or their length is not a multiple of the labels per
            sample, or a label is above 2, or a loss, time or bandwidth is negative or not finite.
    """
    labels = message.labels_per_sample or 1
    return IterationReport(
        iteration=message.iteration,
        loss_sum=message.loss_sum,
        score_bins=_by_sample(message.score_bins, np.uint16, labels, "score_bins"),
        labels=_by_sample(message.labels, np.uint8, labels, "labels"),
        transfers=decode_transfers(message.transfers),
        phases=decode_phases(message.phases),
        seconds=message.seconds,
        epoch=message.epoch,
        measured_bandwidth=message.measured_bandwidth_bytes_per_second,
        groups=decode_column(message.groups, np.uint64, "groups") if message.groups else None,
        label_loss_sums=tuple(message.label_loss_sums),
        drift=message.drift,
    )


def _by_sample(data: bytes, dtype: type[np.generic], labels: int, field: str) -> NDArray[Any]:
    """Decodes an array [m, L]; m follows from the bytes."""
    values = decode_column(data, dtype, field)
    if len(values) % labels:
        raise InvalidArgument(f"{field} has {len(values)} values, not a multiple of {labels} labels per sample")
    return values.reshape(-1, labels)


def encode_flush_report(report: FlushReport) -> pb.FlushReport:
    """Encodes a worker's report of one flush."""
    return pb.FlushReport(
        epoch=report.epoch,
        iteration=report.iteration,
        transfers=encode_transfers(report.transfers),
        dense_checksum=report.dense_checksum,
        failure=report.failure[:_LONGEST_FAILURE],
        checkpoint=report.checkpoint,
    )


def decode_flush_report(message: pb.FlushReport) -> FlushReport:
    """Decodes a worker's report of one flush."""
    return FlushReport(
        iteration=message.iteration,
        transfers=decode_transfers(message.transfers),
        epoch=message.epoch,
        dense_checksum=message.dense_checksum,
        failure=message.failure[:_LONGEST_FAILURE],
        checkpoint=message.checkpoint,
    )


def encode_failure_report(failure: FailureReport) -> pb.FailureReport:
    """Encodes a worker's report of a failure."""
    return pb.FailureReport(epoch=failure.epoch, cause=failure.cause[:_LONGEST_FAILURE], fatal=failure.fatal)


def decode_failure_report(message: pb.FailureReport) -> FailureReport:
    """Decodes a worker's report of a failure."""
    return FailureReport(message.cause[:_LONGEST_FAILURE], message.epoch, message.fatal)


def encode_transfers(transfers: TransferCounts) -> pb.TransferCounts:
    """Encodes rows by kind of operation, and bytes."""
    # Each report is bounded, but their sum over a job is not, and protobuf raises on a larger number.
    counts = (min(count, _MOST) for count in transfers)
    return pb.TransferCounts(**dict(zip(TRANSFERS, counts, strict=True)))


def decode_transfers(message: pb.TransferCounts) -> TransferCounts:
    """Decodes rows by kind of operation, and bytes."""
    return TransferCounts(*_counts_of(message))


def encode_phases(phases: PhaseTimes) -> pb.PhaseTimes:
    """Encodes the seconds of an iteration by phase."""
    return pb.PhaseTimes(**dict(zip(PHASES, phases, strict=True)))


def decode_phases(message: pb.PhaseTimes) -> PhaseTimes:
    """Decodes the seconds of an iteration by phase."""
    return PhaseTimes(*_times_of(message))
