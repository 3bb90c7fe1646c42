"""The rows that a reader of `Changes` gets, between the contract and esd.services.domain.changes."""

from __future__ import annotations

import numpy as np

from esd.protos import ps_pb2
from esd.services.domain.changes import ChangedRows, RoundEnd
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.wire.arrays import decode_array, decode_column, encode_array


def encode_changed_rows(block: RowBlock, spec: TableSpec) -> ps_pb2.ChangesResponse:
    """Encodes rows without their versions and optimizer state."""
    values = np.ascontiguousarray(block.rows[:, : spec.dimension])
    return ps_pb2.ChangesResponse(
        ids=encode_array(block.ids, np.uint64, "ids"), values=encode_array(values, np.float32, "values")
    )


def decode_changes(message: ps_pb2.ChangesResponse, spec: TableSpec) -> ChangedRows:
    """Decodes a part of a round of a table."""
    ids = decode_column(message.ids, np.uint64, "ids")
    end = None
    if message.position:
        end = RoundEnd(message.position, message.age_ms / 1000, message.checkpoint, message.finished)
    values = decode_array(message.values, np.float32, (len(ids), spec.dimension), "values")
    return ChangedRows(message.anew, ids, values, end)
