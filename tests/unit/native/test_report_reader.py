"""Reports in one native call against protobuf and the checks of their type: read the same, or left to these."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esd.native.scores import count_scores
from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.reports import (
    LEAST_BANDWIDTH,
    MOST_BANDWIDTH,
    MOST_DRIFT,
    MOST_MOVED,
    MOST_SECONDS,
    SCORE_BINS,
    IterationReport,
    PhaseTimes,
    TransferCounts,
)
from esd.services.wire.attend import encode_request, encode_said
from esd.services.wire.messages import parse
from esd.services.wire.report_reader import read_iteration_reports
from esd.services.wire.reports import decode_iteration_report
from hardening.fuzz.twists import Twist, twists

COUNTS = st.one_of(st.integers(0, 300), st.sampled_from([MOST_MOVED - 1, MOST_MOVED]))
SECONDS = st.one_of(st.floats(0, 2), st.sampled_from([-0.0, MOST_SECONDS]))
NUMBERS = st.integers(0, 2**64 - 1)
BANDWIDTHS = st.sampled_from([0.0, LEAST_BANDWIDTH, 1e6, MOST_BANDWIDTH])
LOSSES = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def reports(draw: st.DrawFn) -> IterationReport:
    """Makes a report of at least one sample."""
    samples, labels = draw(st.integers(1, 40)), draw(st.sampled_from([1, 1, 2, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    grouped = draw(st.booleans())
    return IterationReport(
        iteration=draw(NUMBERS),
        loss_sum=draw(LOSSES),
        score_bins=rng.integers(0, SCORE_BINS, (samples, labels)).astype(np.uint16),
        labels=rng.integers(0, 3, (samples, labels)).astype(np.uint8),
        transfers=TransferCounts(*(draw(COUNTS) for _ in TransferCounts._fields)),
        phases=PhaseTimes(*(draw(SECONDS) for _ in PhaseTimes._fields)),
        seconds=draw(SECONDS),
        epoch=draw(NUMBERS),
        measured_bandwidth=draw(BANDWIDTHS),
        groups=rng.integers(0, 2**64, samples, np.uint64) if grouped else None,
        label_loss_sums=tuple(draw(LOSSES) for _ in range(labels)) if labels > 1 else (),
        drift=draw(st.floats(0, MOST_DRIFT)),
    )


def message_of(said: Sequence[IterationReport]) -> bytes:
    return encode_request(3, *map(encode_said, said))


def by_protobuf(data: bytes) -> list[IterationReport] | None:
    """The reports of a message that holds reports of iterations alone; None for another message, or a refused one."""
    try:
        message = parse(pb.AttendRequest, data)
        found = [decode_iteration_report(report) for report in message.iterations]
    except InvalidArgument:
        return None
    return None if message.WhichOneof("body") else found


def told(report: IterationReport) -> tuple[object, ...]:
    """All that a report says, types of its columns included, to be compared; repr tells 0.0 from -0.0."""
    columns = [report.score_bins, report.labels, *([] if report.groups is None else [report.groups])]
    numbers = report.iteration, report.epoch, report.loss_sum, report.seconds, report.measured_bandwidth, report.drift
    described = [(column.dtype.str, column.tolist()) for column in columns]
    return repr(numbers), described, repr(report.transfers), repr(report.phases), report.label_loss_sums


@settings(max_examples=200)
@given(st.lists(reports(), min_size=1, max_size=4))
def test_reports_are_read_as_protobuf_reads_them(said: list[IterationReport]) -> None:
    data = message_of(said)
    read, expected = read_iteration_reports(data), by_protobuf(data)
    assert read is not None
    assert expected is not None
    assert list(map(told, read)) == list(map(told, expected)) == list(map(told, said))
    for report in read:
        report.__class__.__mro__[1].__post_init__(report)  # type: ignore[attr-defined]  # the check that it went without


@settings(max_examples=300)
@given(st.lists(reports(), min_size=1, max_size=2), twists(pb.AttendRequest.DESCRIPTOR, {}))
def test_what_is_read_of_a_twisted_message_is_what_protobuf_reads(said: list[IterationReport], twist: Twist) -> None:
    data = twist(message_of(said))
    read = read_iteration_reports(data)
    if read is not None:
        assert list(map(told, read)) == list(map(told, by_protobuf(data) or ()))


GOOD = pb.IterationReport(epoch=1, iteration=2, loss_sum=3.0, score_bins=b"\0\0\1\0", labels=b"\0\1", seconds=0.5)


def changed(**values: object) -> bytes:
    """A message with one report, of two samples, some of whose fields have other values."""
    report = pb.IterationReport()
    report.CopyFrom(GOOD)
    report.MergeFrom(pb.IterationReport(**values))  # type: ignore[arg-type]
    return pb.AttendRequest(sequence=1, iterations=[report]).SerializeToString()


def nested(report: bytes) -> bytes:
    """The same with a report of these bytes."""
    return b"\x08\x01\x22" + bytes([len(report)]) + report


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pb.AttendRequest(sequence=1).SerializeToString(),
        changed() + pb.AttendRequest(heartbeat=pb.WORKER_PHASE_PUSH).SerializeToString(),
        changed() + b"\x3a\0",  # a field that this version does not know
        nested(GOOD.SerializeToString() + b"\x72\0"),
        nested(GOOD.SerializeToString() + b"\x08\x02"),  # another epoch, which counts
        nested(GOOD.SerializeToString() + b"\x5d\0\0\0\0"),  # groups as something else, which does not
        changed()[:-1],
        changed(score_bins=b"\0\0"),
        changed(labels=b"\0\3"),
        changed(labels_per_sample=3),
        changed(labels_per_sample=2**32 - 1),
        changed(labels_per_sample=2),
        changed(label_loss_sums=[1.0]),
        changed(labels_per_sample=2, label_loss_sums=[1.0, math.inf]),
        changed(groups=b"\0" * 8),
        changed(loss_sum=math.nan),
        changed(seconds=math.nan),
        changed(seconds=MOST_SECONDS * 1.1),
        changed(phases=pb.PhaseTimes(update=-1e-9)),
        changed(transfers=pb.TransferCounts(bytes_direct=MOST_MOVED + 1)),
        changed(measured_bandwidth_bytes_per_second=LEAST_BANDWIDTH / 2),
        changed(measured_bandwidth_bytes_per_second=MOST_BANDWIDTH * 2),
        changed(measured_bandwidth_bytes_per_second=math.nan),
        changed(drift=-1e-9),
        changed(drift=MOST_DRIFT * 1.1),
        changed(drift=math.nan),
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_protobuf(data: bytes) -> None:
    assert read_iteration_reports(changed()) is not None
    assert read_iteration_reports(data) is None


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("labels_per_sample", [1, 3])
def test_scores_are_counted_by_label_and_bin(by: int, labels_per_sample: int) -> None:
    rng = np.random.default_rng(5)
    bins = rng.choice(rng.integers(0, SCORE_BINS, 60), (500, labels_per_sample)).astype(np.uint16)
    labels = rng.integers(0, 4, (500, labels_per_sample)).astype(np.uint8)
    counts, used = np.full(2 * SCORE_BINS, 9, np.int64), np.zeros(SCORE_BINS, np.bool_)
    count_scores(counts, used, bins[:, -1], labels[:, -1], by)
    counted = labels[:, -1] < 2
    expected = np.full(2 * SCORE_BINS, 9, np.int64)
    np.add.at(expected, labels[counted, -1].astype(np.int64) * SCORE_BINS + bins[counted, -1], by)
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(np.flatnonzero(used), np.unique(bins[counted, -1]))


def test_arrays_of_another_length_or_type_are_refused() -> None:
    counts, used = np.zeros(2 * SCORE_BINS, np.int64), np.zeros(SCORE_BINS, np.bool_)
    bins, labels = np.zeros(3, np.uint16), np.zeros(3, np.uint8)
    with pytest.raises(ValueError, match="counts or used have another length"):
        count_scores(counts[1:], used, bins, labels, 1)
    with pytest.raises(ValueError, match="counts or used have another length"):
        count_scores(counts, used[1:], bins, labels, 1)
    with pytest.raises(ValueError, match="bins and labels differ in length"):
        count_scores(counts, used, bins[1:], labels, 1)
    with pytest.raises(TypeError):
        count_scores(counts, used, bins.astype(np.int64), labels, 1)  # type: ignore[arg-type]
