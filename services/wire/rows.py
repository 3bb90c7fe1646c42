"""Rows, gradients and uploads on the wire of the parameter server.

Decoding checks shapes against the table. The blocks' `validate` and the server check the numbers. This module also cuts
long uploads into messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import GRADIENT_KEY_BYTES, TableSpec
from esd.services.wire.arrays import decode_array, decode_column, encode_array

CHUNK_BYTES = 1 << 20  # payload of a message: fastest for streams, and far below any message limit


def payload_bytes(spec: TableSpec, rows: int) -> int:
    """Returns an upper bound of the bytes of `rows` rows or gradients of a table on the wire."""
    return rows * (spec.row_bytes + GRADIENT_KEY_BYTES)


def values_per_chunk(spec: TableSpec) -> int:
    """Returns the number of rows that fit a chunk, with versions and without optimizer state; at least one."""
    return max(1, CHUNK_BYTES // (4 * spec.dimension + 8))


def encode_lookup(table: str, ids: NDArray[np.uint64], checkpoint: int = 0) -> ps_pb2.LookupRequest:
    """Encodes a request for the values of rows `ids`, uint64 [r], at a checkpoint; 0 asks for the latest values."""
    return ps_pb2.LookupRequest(table=table, ids=encode_array(ids, np.uint64, "ids"), checkpoint=checkpoint)


def decode_lookup(message: ps_pb2.LookupRequest) -> NDArray[np.uint64]:
    """Decodes the ids of a look-up, uint64 [r]."""
    return decode_column(message.ids, np.uint64, "ids")


def encode_values(block: RowBlock, spec: TableSpec) -> ps_pb2.LookupResponse:
    """Encodes rows without their optimizer state."""
    values = np.ascontiguousarray(block.rows[:, : spec.dimension])
    return ps_pb2.LookupResponse(
        versions=encode_array(block.versions, np.int64, "versions"),
        values=encode_array(values, np.float32, "values"),
    )


def decode_values(message: ps_pb2.LookupResponse, spec: TableSpec) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Decodes versions, int64 [c], and values, float32 [c, D]."""
    versions = decode_column(message.versions, np.int64, "versions")
    return versions, decode_array(message.values, np.float32, (len(versions), spec.dimension), "values")


def encode_rows(block: RowBlock, message: ps_pb2.RowBlock) -> None:
    """Writes rows into the part of a larger message, because assigning a finished part would copy the rows again."""
    message.ids = encode_array(block.ids, np.uint64, "rows.ids")
    message.versions = encode_array(block.versions, np.int64, "rows.versions")
    message.rows = encode_array(block.rows, np.float32, "rows.rows")


def decode_rows(message: ps_pb2.RowBlock, spec: TableSpec) -> RowBlock:
    """Decodes rows with their versions."""
    ids = decode_column(message.ids, np.uint64, "rows.ids")
    return RowBlock(
        ids,
        decode_array(message.versions, np.int64, (len(ids),), "rows.versions"),
        decode_array(message.rows, np.float32, (len(ids), spec.row_width), "rows.rows"),
    )


def encode_gradients(block: GradientBlock, message: ps_pb2.GradientBlock) -> None:
    """Writes partial gradients into the part of a larger message."""
    message.ids = encode_array(block.ids, np.uint64, "gradients.ids")
    message.target_versions = encode_array(block.targets, np.int64, "gradients.target_versions")
    message.contributors = encode_array(block.contributors, np.uint64, "gradients.contributors")
    message.steps = encode_array(block.steps, np.uint32, "gradients.steps")
    message.rates = encode_array(block.rates, np.float32, "gradients.rates")
    message.gradients = encode_array(block.gradients, np.float32, "gradients.gradients")
    message.worker = block.worker


def decode_gradients(message: ps_pb2.GradientBlock, spec: TableSpec) -> GradientBlock:
    """Decodes partial gradients."""
    ids = decode_column(message.ids, np.uint64, "gradients.ids")
    return GradientBlock(
        ids,
        decode_array(message.target_versions, np.int64, (len(ids),), "gradients.target_versions"),
        _decode_contributors(message.contributors, len(ids)),
        decode_array(message.steps, np.uint32, (len(ids),), "gradients.steps"),
        decode_array(message.rates, np.float32, (len(ids),), "gradients.rates"),
        decode_array(message.gradients, np.float32, (len(ids), spec.dimension), "gradients.gradients"),
        message.worker,
    )


def _decode_contributors(data: bytes, rows: int) -> NDArray[np.uint64]:
    """Decodes a set of workers for each row: uint64 [rows], or [rows, 2] in a job of more than 64 workers."""
    shape = (rows, 2) if rows and len(data) == 16 * rows else (rows,)
    return decode_array(data, np.uint64, shape, "gradients.contributors")


def encode_forget(table: str, ids: NDArray[np.uint64], below: int, *, epoch: int = 0) -> ps_pb2.ForgetRequest:
    """Encodes a request to forget the rows among `ids`, uint64 [r], with a version below `below`."""
    return ps_pb2.ForgetRequest(table=table, epoch=epoch, ids=encode_array(ids, np.uint64, "ids"), below=below)


def decode_forget(message: ps_pb2.ForgetRequest) -> tuple[NDArray[np.uint64], int]:
    """Decodes the ids, uint64 [r], and the version below which their rows are forgotten."""
    return decode_column(message.ids, np.uint64, "ids"), message.below


def dense_chunks(
    table: str, data: bytes, chunk_bytes: int = CHUNK_BYTES, *, epoch: int
) -> Iterator[ps_pb2.PutDenseRequest]:
    """Yields the upload of the dense parameters of a table's model, a serialised .npz file, in chunks."""
    for piece, last in pieces(data, chunk_bytes):
        yield ps_pb2.PutDenseRequest(table=table, data=piece, last=last, epoch=epoch)


def part_chunks(
    table: str, checkpoint: int, name: str, data: bytes | memoryview, chunk_bytes: int = CHUNK_BYTES, *, epoch: int
) -> Iterator[ps_pb2.PutPartRequest]:
    """Yields the upload of one named part of a checkpoint in chunks."""
    for piece, last in pieces(data, chunk_bytes):
        yield ps_pb2.PutPartRequest(table=table, checkpoint=checkpoint, name=name, data=piece, last=last, epoch=epoch)


def pieces(data: bytes | memoryview, size: int = CHUNK_BYTES) -> Iterator[tuple[bytes, bool]]:
    """Yields pieces of at most `size` bytes, each with a flag that marks the last; empty data gives one empty piece."""
    for start in range(0, max(1, len(data)), size):
        end = start + size
        yield bytes(data[start:end]), end >= len(data)
