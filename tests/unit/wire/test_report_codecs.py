"""Registrations, leases and reports survive the wire; malformed ones are refused by name."""

import numpy as np
import pytest

from protos import dispatcher_pb2 as pb
from services.domain.errors import InvalidArgument
from services.domain.reports import FlushReport, IterationReport, Lease, PhaseTimes, Registration, TransferCounts
from services.wire.reports import (
    decode_lease,
    decode_registration,
    decode_report,
    encode_lease,
    encode_registration,
    encode_report,
)

TRANSFERS = TransferCounts(1, 2, 3, 4, 5, 6)


def test_registration_and_lease_round_trip() -> None:
    registration = Registration("edge-1", 62.5e6, 1000, "10.0.0.1:7000", "10.0.0.1:7001")
    assert decode_registration(encode_registration(registration)) == registration
    lease = Lease("ab12", 1.5)
    assert decode_lease(encode_lease(lease)) == lease


def test_iteration_report_round_trip() -> None:
    report = IterationReport(
        iteration=2**40,
        loss_sum=3.5,
        score_bins=np.array([0, 513, 65535], np.uint16),
        labels=np.array([0, 1, 1], np.uint8),
        transfers=TRANSFERS,
        phases=PhaseTimes(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        seconds=21.0,
        epoch=4,
        measured_bandwidth=1e6,
    )
    message = encode_report("lease", report)
    again = decode_report(pb.ReportRequest.FromString(message.SerializeToString()))
    assert message.lease_id == "lease"
    assert isinstance(again, IterationReport)
    np.testing.assert_array_equal(again.score_bins, report.score_bins)
    np.testing.assert_array_equal(again.labels, report.labels)
    assert again.score_bins.dtype == np.uint16
    assert (again.transfers, again.phases) == (report.transfers, report.phases)
    assert (again.iteration, again.loss_sum, again.seconds, again.measured_bandwidth) == (2**40, 3.5, 21.0, 1e6)
    assert again.epoch == 4


def test_flush_report_round_trip() -> None:
    report = FlushReport(60, TRANSFERS, 2)
    assert decode_report(encode_report("lease", report)) == report


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.ReportRequest(score_bins=b"\0\0\0", labels=b"\0"), "score_bins has 3 bytes"),
        (pb.ReportRequest(score_bins=b"\0\0", labels=b"\0\1"), "1 score_bins for 2 labels"),
        (pb.ReportRequest(score_bins=b"\0\0", labels=b"\7"), "labels hold 7"),
        (pb.ReportRequest(loss_sum=float("nan")), "loss_sum of iteration 0 is nan"),
    ],
)
def test_malformed_report_is_refused(message: pb.ReportRequest, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        decode_report(message)
