"""Rows for another worker as that worker reads them (protos/worker.proto, Deliver).

They are written by `encode_parcel` of services/wire/frames.py, and answered as a parameter server answers, by
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
    """Rows of one table that another worker has owned, and that this one trains in an iteration.

    Attributes:
        epoch: of the plan.
        iteration: of the plan.
        table: number of the table in the job.
        rows: whole ones.
    """

    epoch: int
    iteration: int
    table: int
    rows: RowBlock


def decode_delivery(data: bytes, tables: Sequence[TableSpec]) -> Delivery:
    """Reads a frame of a job with these tables, by number.

    Raises:
        InvalidArgument: these bytes are none, the job has no such table, or these are no rows of it.
    """
    request = parse(worker_pb2.DeliverRequest, data)
    table = next((number for number, spec in enumerate(tables) if spec.name == request.table), None)
    if table is None:
        raise InvalidArgument(f"the job has no table {request.table!r}")
    rows = decode_rows(request.rows, tables[table])
    rows.validate(tables[table])
    return Delivery(request.epoch, request.iteration, table, rows)
