"""Rows, gradients and uploads survive the wire; malformed messages are refused by field."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from esd.protos import ps_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.rows import (
    CHUNK_BYTES,
    decode_forget,
    decode_gradients,
    decode_lookup,
    decode_rows,
    decode_values,
    dense_chunks,
    encode_forget,
    encode_gradients,
    encode_lookup,
    encode_rows,
    encode_values,
    part_chunks,
    values_per_chunk,
)

SPEC = TableSpec("t", 3, OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD), seed=0, init_scale=0.1)
COUNTS = st.integers(0, 7)
PAYLOADS = [b"", b"x", bytes(range(10)), bytes(range(11))]


@st.composite
def row_blocks(draw: st.DrawFn) -> RowBlock:
    r = draw(COUNTS)
    return RowBlock(
        draw(arrays(np.uint64, r)), draw(arrays(np.int64, r)), draw(arrays(np.float32, (r, SPEC.row_width)))
    )


@st.composite
def gradient_blocks(draw: st.DrawFn) -> GradientBlock:
    r = draw(COUNTS)
    return GradientBlock(
        ids=draw(arrays(np.uint64, r)),
        targets=draw(arrays(np.int64, r)),
        contributors=draw(arrays(np.uint64, (r, 2) if r and draw(st.booleans()) else r)),
        steps=draw(arrays(np.uint32, r)),
        rates=draw(arrays(np.float32, r)),
        gradients=draw(arrays(np.float32, (r, SPEC.dimension))),
        worker=draw(st.integers(0, 127)),
    )


def assert_same(before: Any, after: Any) -> None:
    """Every column has the same type, shape and bytes, and every other field is equal."""
    for field in dataclasses.fields(before):
        one, other = getattr(before, field.name), getattr(after, field.name)
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), field.name
        else:
            assert one == other, field.name


def joined(blocks: list[Any], *columns: str) -> dict[str, np.ndarray]:
    """The columns of consecutive blocks, each in one piece."""
    return {name: np.concatenate([getattr(block, name) for block in blocks]) for name in columns}


def sent(message: Any) -> Any:
    """The message as the other side parses it."""
    return type(message).FromString(message.SerializeToString())


@given(row_blocks())
def test_a_chunk_of_rows_survives(block: RowBlock) -> None:
    message = ps_pb2.ScanResponse()
    encode_rows(block, message.rows)
    assert_same(block, decode_rows(sent(message).rows, SPEC))


@given(gradient_blocks())
def test_a_block_of_gradients_survives(block: GradientBlock) -> None:
    message = ps_pb2.ExchangeRequest()
    encode_gradients(block, message.gradients)
    assert_same(block, decode_gradients(sent(message).gradients, SPEC))


@given(row_blocks())
def test_values_survive_without_the_state_beside_them(block: RowBlock) -> None:
    versions, values = decode_values(sent(encode_values(block, SPEC)), SPEC)
    expected = RowBlock(block.ids, block.versions, np.ascontiguousarray(block.rows[:, : SPEC.dimension]))
    assert_same(expected, RowBlock(block.ids, versions, values))
    assert decode_lookup(sent(encode_lookup("t", block.ids))).tolist() == block.ids.tolist()


@given(row_blocks(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1))
def test_a_forget_survives(block: RowBlock, below: int, epoch: int) -> None:
    message = sent(encode_forget("t", block.ids, below, epoch=epoch))
    ids, decoded = decode_forget(message)
    assert_same(block, RowBlock(ids, block.versions, block.rows))
    assert (message.table, decoded, message.epoch) == ("t", below, epoch)


@pytest.mark.parametrize("data", PAYLOADS)
def test_dense_parameters_come_in_chunks_of_which_the_last_is_marked(data: bytes) -> None:
    chunks = [sent(chunk) for chunk in dense_chunks("t", data, chunk_bytes=5, epoch=3)]
    assert b"".join(chunk.data for chunk in chunks) == data
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all((chunk.table, chunk.epoch) == ("t", 3) and len(chunk.data) <= 5 for chunk in chunks)


@pytest.mark.parametrize("data", PAYLOADS)
def test_a_part_comes_in_chunks_of_which_the_last_is_marked(data: bytes) -> None:
    chunks = [sent(chunk) for chunk in part_chunks("t", 12, "dense", data, chunk_bytes=5, epoch=3)]
    assert b"".join(chunk.data for chunk in chunks) == data
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {(chunk.table, chunk.checkpoint, chunk.name, chunk.epoch) for chunk in chunks} == {("t", 12, "dense", 3)}


@pytest.mark.parametrize("dimension", [1, 16, 512, 4096])
def test_a_chunk_holds_as_many_values_as_fit_a_mebibyte_and_at_least_one(dimension: int) -> None:
    spec = dataclasses.replace(SPEC, dimension=dimension)
    rows = values_per_chunk(spec)
    assert rows * (4 * dimension + 8) <= CHUNK_BYTES < (rows + 1) * (4 * dimension + 8)


def test_an_array_of_another_type_is_not_sent() -> None:
    with pytest.raises(TypeError, match="ids is int64, the contract requires uint64"):
        encode_lookup("t", np.arange(3))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ids": bytes(7)}, "rows.ids has 7 bytes"),
        ({"versions": b""}, r"rows.versions has 0 bytes, int64 \[1\] needs 8"),
        ({"rows": bytes(12)}, r"rows.rows has 12 bytes, float32 \[1, 4\] needs 16"),
    ],
)
def test_a_malformed_chunk_of_rows_is_refused(fields: dict[str, bytes], text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{text}"):
        decode_rows(ps_pb2.RowBlock(**{"ids": bytes(8), "versions": bytes(8), "rows": bytes(16), **fields}), SPEC)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ids": bytes(9)}, "gradients.ids has 9 bytes"),
        ({"target_versions": b"\1"}, r"gradients.target_versions has 1 bytes, int64 \[1\] needs 8"),
        ({"contributors": b"\3"}, r"gradients.contributors has 1 bytes, uint64 \[1\] needs 8"),
        ({"steps": bytes(16)}, r"gradients.steps has 16 bytes, uint32 \[1\] needs 4"),
        ({"rates": b""}, r"gradients.rates has 0 bytes, float32 \[1\] needs 4"),
        ({"gradients": bytes(16)}, r"gradients.gradients has 16 bytes, float32 \[1, 3\] needs 12"),
    ],
)
def test_a_push_of_malformed_gradients_is_refused(fields: dict[str, bytes], text: str) -> None:
    good = dict.fromkeys(("ids", "target_versions", "contributors"), bytes(8))
    good |= {"steps": bytes(4), "rates": bytes(4), "gradients": bytes(12)}
    body = ps_pb2.GradientBlock(**good | fields)
    with pytest.raises(InvalidArgument, match=f"^{text}"):
        decode_gradients(body, SPEC)


def test_a_malformed_forget_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="ids has 9 bytes"):
        decode_forget(ps_pb2.ForgetRequest(table="t", ids=bytes(9), below=2**30))
