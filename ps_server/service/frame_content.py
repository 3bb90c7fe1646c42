"""A frame of the exchange that is applied in a thread: its decoded parts, and their effect on the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2
from esd.ps_server.core.table import Pushed, Table
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.wire.exchange import Stored, WantedRows, decode_pulls
from esd.services.wire.rows import decode_gradients, decode_rows

Due = tuple[NDArray[np.uint64], NDArray[np.int64]]  # ids and wanted versions, [r] each


@dataclass(frozen=True, slots=True)
class FrameContent:
    """The decoded parts of a frame, in the order in which they are applied; None for a part that it lacks.

    Attributes:
        epoch: the epoch of the plan.
        rows: rows to store.
        gradients: gradients to store.
        pulls: rows to read.
    """

    epoch: int
    rows: RowBlock | None
    gradients: GradientBlock | None
    pulls: WantedRows | None

    @property
    def pushes(self) -> bool:
        """Whether the frame stores rows or gradients."""
        return self.rows is not None or self.gradients is not None


def decode_frame(message: ps_pb2.ExchangeRequest, spec: TableSpec) -> FrameContent:
    """Decodes a frame for a table. Raises InvalidArgument if a column has the wrong length, or the frame is empty."""
    frame = FrameContent(
        message.epoch,
        decode_rows(message.rows, spec) if message.HasField("rows") else None,
        decode_gradients(message.gradients, spec) if message.HasField("gradients") else None,
        decode_pulls(message.pulls) if message.HasField("pulls") else None,
    )
    if not frame.pushes and frame.pulls is None:
        raise InvalidArgument("the frame neither stores nor pulls anything")
    return frame


def apply_frame(
    frame: FrameContent, table: Table, announce: Callable[[Pushed], None], due: Due | None
) -> tuple[Stored | None, RowBlock | Exception | None]:
    """Stores the pushes of a frame, then reads the first rows that it pulls.

    Args:
        frame: the frame to apply.
        table: the table of the frame.
        announce: called with the result of each push as soon as it is stored.
        due: ids and wanted versions of the rows to read; None: the frame pulls nothing.

    Returns:
        The counts of stored rows and gradients, None if the frame pushes nothing; and the rows, or the error of
        reading them.

    Raises:
        EsdError: a push failed, possibly after a part of it was stored. The frame is not acknowledged and may be sent
            again.
    """
    if frame.pulls is not None:
        table.check_pull(frame.pulls.ids, frame.pulls.versions, frame.epoch)
    if frame.rows is not None and frame.gradients is None and due is not None:
        with suppress(FailedPrecondition):  # the two single calls below find out which of them is refused
            pushed, block = table.push_rows_and_read(frame.rows, *due, frame.epoch)
            announce(pushed)
            return Stored(pushed.stored, pushed.already_known), block
    new = known = 0
    for pushed in _push(frame, table):
        announce(pushed)
        new += pushed.stored
        known += pushed.already_known
    stored = Stored(new, known) if frame.pushes else None
    try:
        return stored, None if due is None else table.read(*due)
    except Exception as error:  # noqa: BLE001 - the push is stored and must be acknowledged, even if the read fails
        return stored, error


def _push(frame: FrameContent, table: Table) -> Iterator[Pushed]:
    if frame.rows is not None:
        yield table.push_rows(frame.rows, frame.epoch)
    if frame.gradients is not None:
        yield table.push_gradients(frame.gradients, frame.epoch)
