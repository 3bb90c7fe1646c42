"""Registrations, leases and reports survive the wire; malformed ones are refused by name."""

import numpy as np
import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.reports import (
    FailureReport,
    FlushReport,
    IterationReport,
    Lease,
    PhaseTimes,
    Registration,
    TransferCounts,
    WorkerPhase,
)
from esd.services.wire.reports import (
    decode_failure_report,
    decode_flush_report,
    decode_iteration_report,
    decode_lease,
    decode_phase,
    decode_registration,
    decode_transfers,
    encode_failure_report,
    encode_flush_report,
    encode_iteration_report,
    encode_lease,
    encode_phase,
    encode_registration,
    encode_transfers,
)

LEASE = Lease("ab12", 1.5)

TRANSFERS = TransferCounts(1, 2, 3, 4, 5, 6)


def test_registration_and_lease_round_trip() -> None:
    registration = Registration("edge-1", 62.5e6, 1000, "10.0.0.1:7000", "4711", 8, 96, 1.25e8)
    assert decode_registration(encode_registration(registration)) == registration
    assert decode_lease(encode_lease(LEASE)) == LEASE


def test_iteration_report_round_trip() -> None:
    report = IterationReport(
        iteration=2**40,
        loss_sum=3.5,
        score_bins=np.array([[0, 7], [513, 8], [65535, 9]], np.uint16),
        labels=np.array([[0, 1], [1, 2], [1, 0]], np.uint8),
        transfers=TRANSFERS,
        phases=PhaseTimes(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        seconds=21.0,
        epoch=4,
        measured_bandwidth=1e6,
        label_loss_sums=(3.0, 4.0),
        drift=0.25,
    )
    message = encode_iteration_report(report)
    again = decode_iteration_report(pb.IterationReport.FromString(message.SerializeToString()))
    np.testing.assert_array_equal(again.score_bins, report.score_bins)
    np.testing.assert_array_equal(again.labels, report.labels)
    assert again.score_bins.dtype == np.uint16
    assert (again.transfers, again.phases) == (report.transfers, report.phases)
    assert (again.iteration, again.loss_sum, again.seconds, again.measured_bandwidth) == (2**40, 3.5, 21.0, 1e6)
    assert (again.epoch, again.label_loss_sums, again.drift) == (4, (3.0, 4.0), 0.25)


def test_flush_report_round_trip() -> None:
    report = FlushReport(60, TRANSFERS, 2, "ab" * 32, "the disk is full", checkpoint=True)
    assert decode_flush_report(encode_flush_report(report)) == report


def test_failure_report_round_trip() -> None:
    failure = FailureReport("the loss of iteration 3 is nan", 5, fatal=True)
    assert decode_failure_report(encode_failure_report(failure)) == failure


def test_the_cause_of_a_failure_is_cut_by_both_ends() -> None:
    """The cause is kept with the job's recoveries and sent to all workers."""
    long = FailureReport("x" * 10_000, 5)
    assert len(encode_failure_report(long).cause) == 1000
    assert decode_failure_report(pb.FailureReport(cause=long.cause)).cause == "x" * 1000


@pytest.mark.parametrize("phase", WorkerPhase)
def test_heartbeat_round_trip(phase: WorkerPhase) -> None:
    assert decode_phase(encode_phase(phase)) is phase


def test_a_heartbeat_that_says_nothing_is_of_an_idle_worker_and_an_unknown_phase_is_refused() -> None:
    assert decode_phase(0) is WorkerPhase.IDLE
    with pytest.raises(InvalidArgument, match="phase is 77, it must be one of"):
        decode_phase(77)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.IterationReport(score_bins=b"\0\0\0", labels=b"\0"), "score_bins has 3 bytes"),
        (pb.IterationReport(score_bins=b"\0\0", labels=b"\0\1"), r"score_bins are \(1, 1\), labels are \(2, 1\)"),
        (pb.IterationReport(score_bins=b"\0\0", labels=b"\7"), "labels hold 7"),
        (
            pb.IterationReport(labels_per_sample=2, labels=b"\1\0\1"),
            "labels has 3 values, not a multiple of 2 labels",
        ),
        (pb.IterationReport(loss_sum=float("nan")), "loss_sum of iteration 0 is nan"),
        (pb.IterationReport(label_loss_sums=[1.0, 2.0]), "label_loss_sums are 2 for 1 labels"),
        (pb.IterationReport(drift=-0.5), r"drift of iteration 0 is -0.5, it must be in 0\.\.1e\+09"),
    ],
)
def test_malformed_report_is_refused(message: pb.IterationReport, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        decode_iteration_report(message)


def test_totals_that_are_beyond_what_a_count_can_hold_are_told_as_the_most() -> None:
    """Such totals come from a worker that reports with every iteration the most that it may report."""
    total = sum((TransferCounts(bytes_pushed=2**48) for _ in range(2)), TransferCounts(bytes_pushed=2**64 - 2**48))
    assert decode_transfers(encode_transfers(total)).bytes_pushed == 2**64 - 1
