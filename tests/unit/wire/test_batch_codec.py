"""Sample batches survive the wire; malformed ones are refused by field."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protos import common_pb2, ps_pb2
from services.domain.batches import LogEntry, SampleBatch
from services.domain.errors import InvalidArgument
from services.wire.arrays import decode_array, decode_column, encode_array
from services.wire.batches import decode_batch, decode_log_entry, encode_batch, encode_log_entry

SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 3))
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def batches(draw: st.DrawFn) -> SampleBatch:
    k, fields, features = draw(SHAPES)
    return SampleBatch(
        ids=draw(arrays(np.uint64, (k, fields))),
        dense=draw(arrays(np.float32, (k, features), elements=FINITE)),
        labels=draw(arrays(np.float32, (k,), elements=st.sampled_from([0.0, 1.0]))),
    )


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
    wire = encode_batch(batch).SerializeToString()
    decoded = decode_batch(common_pb2.SampleBatch.FromString(wire))
    for name in ("ids", "dense", "labels"):
        before, after = getattr(batch, name), getattr(decoded, name)
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
        ({"ids": bytes(47)}, r"ids has 47 bytes, uint64 \[2, 3\] needs 48"),
        ({"ids": b""}, "ids has 0 bytes"),
        ({"dense_features": 2}, r"dense has 8 bytes, float32 \[2, 2\] needs 16"),
        ({"labels": bytes(12)}, "labels has 12 bytes"),
        ({"samples": 2**32 - 1, "fields": 2**32 - 1}, "ids has 48 bytes"),  # no allocation of what is claimed
        ({"fields": 0, "ids": b""}, "fields is 0"),
        ({"dense": np.array([0, np.nan], np.float32).tobytes()}, "dense of sample 1 is not finite"),
        ({"labels": np.array([0, 2], np.float32).tobytes()}, "label of sample 1 is 2"),
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
    with pytest.raises(InvalidArgument, match=f"ids has {length} bytes, which is no multiple of the 8 of uint64"):
        decode_column(bytes(length), np.uint64, "ids")


def test_strided_and_big_endian_arrays_travel_little_endian_and_packed() -> None:
    strided = np.arange(6, dtype=np.uint32).reshape(2, 3).T
    np.testing.assert_array_equal(decode_array(encode_array(strided, np.uint32, "x"), np.uint32, (3, 2), "x"), strided)
    assert encode_array(np.array([1], ">i8").astype(np.int64), np.int64, "x") == b"\x01" + bytes(7)


def test_another_type_is_a_defect_and_never_converted() -> None:
    with pytest.raises(TypeError, match="ids is int64, the contract says uint64"):
        encode_array(np.array([-1]), np.uint64, "ids")
