"""The receiver's side of rows that one worker sends to another (protos/worker.proto, Deliver).

The sender encodes them by `encode_parcel` of services/wire/frames.py. The receiver answers like a parameter server, by
`encode_stored` and `encode_refusal` of services/wire/exchange.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esd.protos import worker_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.wire.messages import parse
from esd.services.wire.rows import decode_rows


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows of one table from their previous owner, for the worker that trains them in an iteration.

    Attributes:
        epoch: the epoch of the plan.
        iteration: the iteration of the plan.
        table: the number of the table in the job.
        rows: whole rows, with optimizer state.
    """

    epoch: int
    iteration: int
    table: int
    rows: RowBlock


def decode_delivery(data: bytes, tables: Sequence[TableSpec]) -> Delivery:
    """Decodes a frame of a job with these tables, by number.

    Raises:
        InvalidArgument: the bytes are no such frame, or the job has no table of this name, or the rows do not fit the
            table.
    """
    request = parse(worker_pb2.DeliverRequest, data)
    table = next((number for number, spec in enumerate(tables) if spec.name == request.table), None)
    if table is None:
        raise InvalidArgument(f"the job has no table {request.table!r}")
    rows = decode_rows(request.rows, tables[table])
    rows.validate(tables[table])
    return Delivery(request.epoch, request.iteration, table, rows)
