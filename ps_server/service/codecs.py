"""Blocks of rows and gradients on the wire."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2
from services.domain.rows import GradientBlock, RowBlock
from services.domain.tables import TableSpec
from services.wire.arrays import decode_array, decode_column, encode_array

CHUNK_BYTES = 1 << 20  # of payload; streams of this size move fastest, far below any message limit
_COLUMN_BYTES = 16  # of id and version beside each row


def rows_per_chunk(spec: TableSpec) -> int:
    """Rows that fit a chunk with their ids and versions; at least one."""
    return max(1, CHUNK_BYTES // (spec.row_bytes + _COLUMN_BYTES))


def decode_pull(request: ps_pb2.PullRequest) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Ids and wanted versions."""
    ids = decode_column(request.ids, np.uint64, "ids")
    return ids, decode_array(request.versions, np.int64, (len(ids),), "versions")


def decode_forget(request: ps_pb2.ForgetRequest) -> NDArray[np.uint64]:
    """Ids of rows to forget."""
    return decode_column(request.ids, np.uint64, "ids")


def decode_rows(message: ps_pb2.RowPush, spec: TableSpec) -> RowBlock:
    """The rows of a push."""
    ids = decode_column(message.ids, np.uint64, "rows.ids")
    return RowBlock(
        ids,
        decode_array(message.versions, np.int64, (len(ids),), "rows.versions"),
        decode_array(message.rows, np.float32, (len(ids), spec.row_width), "rows.rows"),
    )


def decode_gradients(message: ps_pb2.GradientPush, spec: TableSpec) -> GradientBlock:
    """The partial gradients of a push."""
    ids = decode_column(message.ids, np.uint64, "gradients.ids")
    return GradientBlock(
        ids,
        decode_array(message.target_versions, np.int64, (len(ids),), "gradients.target_versions"),
        decode_array(message.contributors, np.uint64, (len(ids),), "gradients.contributors"),
        decode_array(message.steps, np.int64, (len(ids),), "gradients.steps"),
        decode_array(message.gradients, np.float32, (len(ids), spec.dimension), "gradients.gradients"),
        message.worker,
    )


def encode_chunk(block: RowBlock) -> ps_pb2.RowChunk:
    """A chunk of rows."""
    return ps_pb2.RowChunk(
        ids=encode_array(block.ids, np.uint64, "ids"),
        versions=encode_array(block.versions, np.int64, "versions"),
        rows=encode_array(block.rows, np.float32, "rows"),
    )
