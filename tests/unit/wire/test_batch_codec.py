"""Sample batches survive the wire; malformed ones are refused by field."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from esd.protos import common_pb2, ps_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.wire.arrays import decode_array, decode_column, encode_array
from esd.services.wire.batches import decode_batch, decode_log_entry, encode_batch, encode_log_entry, in_messages

SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 3))
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def batches(draw: st.DrawFn) -> SampleBatch:
    k, fields, features = draw(SHAPES)
    lengths = draw(st.none() | arrays(np.uint32, (k, fields), elements=st.integers(0, 3))) if k else None
    references = draw(st.none() | arrays(np.uint64, k)) if k else None
    labels, features = (draw(st.integers(1, 3)), features) if references is None else (0, 0)
    return SampleBatch(
        ids=draw(arrays(np.uint64, k * fields if lengths is None else int(lengths.sum()))),
        dense=draw(arrays(np.float32, (k, features), elements=FINITE)),
        labels=draw(arrays(np.float32, (k, labels), elements=FINITE)),
        lengths=lengths,
        weights=draw(st.none() | arrays(np.float32, k, elements=st.floats(0, 9, width=32))) if k else None,
        groups=draw(st.none() | arrays(np.uint64, k)) if k else None,
        references=references,
    )


@given(batches(), st.integers(0, 300), st.integers(0, 10**6))
def test_a_batch_is_cut_into_messages_by_bytes(batch: SampleBatch, spare: int, first: int) -> None:
    longest = int(batch.sizes.max(initial=0)) + spare
    parts = list(in_messages(batch, first, longest))
    assert all(0 < part.nbytes <= longest for part in parts)
    if not parts:
        assert not len(batch)
        return
    joined = SampleBatch.concatenate(parts)
    for name in ("ids", "dense", "labels", "lengths", "weights", "groups", "references"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(batch, name))
    for part, after in pairwise(parts):
        assert part.nbytes + int(after.sizes[0]) > longest, "a message could hold more"


def test_a_sample_that_no_message_holds_is_refused_by_its_number() -> None:
    batch = SampleBatch(
        np.arange(4, dtype=np.uint64),
        np.zeros((2, 5), np.float32),
        np.zeros((2, 1), np.float32),
        np.array([[1], [3]], np.uint32),
    )
    parts = in_messages(batch, 100, longest=50)
    assert len(next(parts)) == 1
    with pytest.raises(
        InvalidArgument, match=r"sample 101 of the stream has 52 bytes \(3 ids, 5 dense features\).* 50 "
    ):
        next(parts)


def message(**changes: Any) -> common_pb2.SampleBatch:
    """A good message of 2 samples, 3 fields and 1 dense feature, with some fields changed."""
    good = {
        "samples": 2,
        "fields": 3,
        "dense_features": 1,
        "ids": np.arange(6, dtype=np.uint64).tobytes(),
        "dense": np.zeros(2, np.float32).tobytes(),
        "labels": np.array([0, 1], np.float32).tobytes(),
    }
    return common_pb2.SampleBatch(**good | changes)


@given(batches())
def test_round_trip(batch: SampleBatch) -> None:
    wire = encode_batch(batch)
    wire.fields = wire.fields or 1  # without samples it cannot be told
    wire = wire.SerializeToString()
    decoded = decode_batch(common_pb2.SampleBatch.FromString(wire))
    for name in ("ids", "dense", "labels", "lengths", "weights", "groups", "references"):
        before, after = getattr(batch, name), getattr(decoded, name)
        if before is None or after is None:
            assert before is after
            continue
        assert before.shape == after.shape
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


@given(st.integers(0, 2**63), st.integers(0, 2**31), st.binary(max_size=9))
def test_an_entry_of_the_sample_log_survives(position: int, samples: int, batch: bytes) -> None:
    entry = LogEntry(position, samples, batch)
    assert decode_log_entry(ps_pb2.SampleLogEntry.FromString(encode_log_entry(entry).SerializeToString())) == entry


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ids": bytes(47)}, r"ids has 47 bytes, uint64 \[6\] needs 48"),
        ({"ids": b""}, "ids has 0 bytes"),
        ({"dense_features": 2}, r"dense has 8 bytes, float32 \[2, 2\] needs 16"),
        ({"labels": bytes(12)}, "labels has 12 bytes"),
        ({"samples": 2**32 - 1, "fields": 2**32 - 1}, "ids has 48 bytes"),  # no allocation of what is claimed
        ({"fields": 0, "ids": b""}, "fields is 0"),
        ({"dense": np.array([0, np.nan], np.float32).tobytes()}, "dense of sample 1 is not finite"),
        ({"labels": np.array([0, np.inf], np.float32).tobytes()}, "label of sample 1 is not finite"),
        ({"labels_per_sample": 2}, r"labels has 8 bytes, float32 \[2, 2\] needs 16"),
        ({"lengths": np.ones(5, np.uint32).tobytes()}, r"lengths has 20 bytes, uint32 \[2, 3\] needs 24"),
        ({"lengths": np.array([1, 1, 1, 1, 1, 2], np.uint32).tobytes()}, r"ids has 48 bytes, uint64 \[7\] needs 56"),
        ({"weights": np.array([1, -1], np.float32).tobytes()}, "weight of sample 1 is -1"),
        ({"weights": np.array([np.nan, 1], np.float32).tobytes()}, "weight of sample 0 is not finite"),
        ({"groups": bytes(8)}, "groups has 8 bytes"),
    ],
)
def test_malformed_batches_are_refused_by_field(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        decode_batch(message(**changes))


def test_decoding_copies_nothing() -> None:
    data = np.arange(4, dtype=np.uint64).tobytes()
    decoded = decode_array(data, np.uint64, (2, 2), "ids")
    assert np.shares_memory(decoded, np.frombuffer(data, np.uint8))
    assert not decoded.flags.writeable


@pytest.mark.parametrize("length", [1, 7, 9, 15])
def test_a_column_of_odd_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidArgument, match=f"ids has {length} bytes, which is not a multiple of the 8 of uint64"):
        decode_column(bytes(length), np.uint64, "ids")


def test_strided_and_big_endian_arrays_travel_little_endian_and_packed() -> None:
    strided = np.arange(6, dtype=np.uint32).reshape(2, 3).T
    np.testing.assert_array_equal(decode_array(encode_array(strided, np.uint32, "x"), np.uint32, (3, 2), "x"), strided)
    assert encode_array(np.array([1], ">i8").astype(np.int64), np.int64, "x") == b"\x01" + bytes(7)


def test_another_type_is_a_defect_and_never_converted() -> None:
    with pytest.raises(TypeError, match="ids is int64, the contract requires uint64"):
        encode_array(np.array([-1]), np.uint64, "ids")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.zeros(4, np.int64)}, "ids of a SampleBatch is int64 of 1 dimensions, it must be uint64 of 1"),
        ({"ids": np.zeros((2, 2), np.uint64)}, "ids of a SampleBatch is uint64 of 2 dimensions"),
        ({"ids": [1, 2, 3, 4]}, "ids of a SampleBatch is a list, it must be an array"),
        ({"ids": np.zeros(3, np.uint64)}, "a SampleBatch has 3 ids of 2 samples and no lengths"),
        ({"labels": np.zeros(2, np.float32)}, "labels of a SampleBatch is float32 of 1 dimensions"),
        ({"dense": np.zeros((3, 1), np.float32)}, "dense of a SampleBatch is of 3 samples, labels of 2"),
        ({"dense": None}, "dense of a SampleBatch is a NoneType"),
        ({"weights": np.zeros(2)}, "weights of a SampleBatch is float64"),
        ({"lengths": np.full((2, 2), 1, np.int64)}, "lengths of a SampleBatch is int64"),
    ],
)
def test_arrays_of_another_kind_are_named_before_they_are_sent(changes: dict[str, Any], message: str) -> None:
    arrays = {
        "ids": np.zeros(4, np.uint64),
        "dense": np.zeros((2, 1), np.float32),
        "labels": np.zeros((2, 1), np.float32),
    }
    encode_batch(SampleBatch(**arrays))
    with pytest.raises(InvalidArgument, match=message):
        encode_batch(SampleBatch(**(arrays | changes)))
