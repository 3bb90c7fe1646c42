"""A frame of the exchange that is applied in threads: its decoded parts, and the effect of its pushes on the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from esd.protos import ps_pb2
from esd.ps_server.core.table import Pushed, Table
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.wire.exchange import Stored, WantedRows, decode_pulls
from esd.services.wire.rows import decode_gradients, decode_rows


@dataclass(frozen=True, slots=True)
class FrameContent:
    """The decoded parts of a frame; None for a part that it lacks.

    Attributes:
        epoch: the epoch of the plan.
        rows: rows to store.
        gradients: gradients to store after the rows.
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

    @property
    def pulls_pushed_rows(self) -> bool:
        """Whether it reads a row that it pushes."""
        if self.pulls is None:
            return False
        pushed = [part.ids for part in (self.rows, self.gradients) if part is not None]
        return any(bool(np.isin(self.pulls.ids, ids).any()) for ids in pushed)


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


def store_pushes(frame: FrameContent, table: Table, announce: Callable[[Pushed], None]) -> Stored:
    """Stores the pushes of a frame, and returns their counts.

    Args:
        frame: the frame, which pushes rows or gradients.
        table: the table of the frame.
        announce: called with the result of each push as soon as it is stored.

    Raises:
        EsdError: a push failed, possibly after a part of it was stored. The frame is not acknowledged and may be sent
            again.
    """
    new = known = 0
    for pushed in _push(frame, table):
        announce(pushed)
        new += pushed.stored
        known += pushed.already_known
    return Stored(new, known)


def _push(frame: FrameContent, table: Table) -> Iterator[Pushed]:
    if frame.rows is not None:
        yield table.push_rows(frame.rows, frame.epoch)
    if frame.gradients is not None:
        yield table.push_gradients(frame.gradients, frame.epoch)
