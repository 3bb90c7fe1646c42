"""Registrations and reports refuse impossible values, and counts add up field by field."""

import math

import numpy as np
import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.reports import FlushReport, IterationReport, PhaseTimes, Registration, TransferCounts

REGISTRATION = {
    "most_samples": 8,
    "name": "edge-1",
    "bandwidth": 1e6,
    "cache_rows": 10,
    "address": "h:1",
    "instance": "4711",
}


def report(**changes: object) -> IterationReport:
    values: dict[str, object] = {
        "iteration": 3,
        "loss_sum": 1.5,
        "score_bins": np.array([[0], [65535]], np.uint16),
        "labels": np.array([[0], [1]], np.uint8),
        "transfers": TransferCounts(),
        "phases": PhaseTimes(),
        "seconds": 0.1,
        "epoch": 0,
    }
    return IterationReport(**(values | changes))


def test_counts_add_field_by_field() -> None:
    total = TransferCounts(1, 2, 3, 4, 5, 6) + TransferCounts(10, 20, 30, 40, 50, 60)
    assert total == TransferCounts(11, 22, 33, 44, 55, 66)
    assert PhaseTimes(pull=0.5) + PhaseTimes(pull=0.25, push=1.0) == PhaseTimes(pull=0.75, push=1.0)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("name", "", "worker has 0 characters"),
        ("name", "x" * 257, "worker has 257 characters"),
        ("address", "", "address has 0 characters"),
        ("instance", "", "instance has 0 characters"),
        ("bandwidth", 0.0, "bandwidth of worker edge-1 is 0.0"),
        ("bandwidth", math.nan, "bandwidth of worker edge-1 is nan"),
        ("bandwidth", 1e16, r"bandwidth of worker edge-1 is 1e\+16, it must be in 0.001..1e\+15 bytes per second"),
        ("bandwidth", 1e-320, "bandwidth of worker edge-1 is 1e-320"),
        ("cache_rows", 0, "cache_rows of worker edge-1 is 0"),
        ("least_samples", 9, "worker edge-1 takes at least 9 samples and at most 8"),
    ],
)
def test_registration_is_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Registration(**(REGISTRATION | {field: value}))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss_sum", math.nan, "loss_sum of iteration 3 is nan"),
        ("loss_sum", -math.inf, "loss_sum of iteration 3 is -inf"),
        ("seconds", math.inf, "seconds of iteration 3 is inf"),
        ("seconds", 2e9, r"seconds of iteration 3 is 2000000000.0, it must be in 0..1e\+09"),
        ("measured_bandwidth", -1.0, "measured_bandwidth of iteration 3"),
        ("measured_bandwidth", 1e308, r"measured_bandwidth of iteration 3 is 1e\+308, it must be in 0..1e\+15"),
        ("measured_bandwidth", 1e-320, "measured_bandwidth of iteration 3 is 1e-320, it must be 0 or at least 0.001"),
        ("transfers", TransferCounts(miss_pull=2**64 - 1), "miss_pull is 18446744073709551615, it must be at most"),
        ("phases", PhaseTimes(compute=math.nan), "compute of iteration 3 is nan"),
        ("score_bins", np.zeros((3, 1), np.uint16), r"score_bins are \(3, 1\), labels are \(2, 1\)"),
        ("labels", np.array([[0], [3]], np.uint8), "labels hold 3"),
    ],
)
def test_report_is_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        report(**{field: value})


def test_flush_report_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="bytes_pushed is 18446744073709551615, it must be at most"):
        FlushReport(3, TransferCounts(bytes_pushed=2**64 - 1), epoch=0)
