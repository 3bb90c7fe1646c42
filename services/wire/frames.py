"""A client's end of the exchange on the wire: frames that it sends and answers that it receives (protos/ps.proto).

A frame for another worker has a part of these fields, and so has its answer (protos/worker.proto, Deliver). Native code
writes and reads the messages, so that rows are copied once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from esd.native import wire as native
from esd.protos import common_pb2, ps_pb2
from esd.services.domain.errors import Internal
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.tables import TableSpec
from esd.services.wire.exchange import Credit

_LONGEST_WAIT_MS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class FrameMessage:
    """The message of a frame, in three parts: head, pushes, pulls.

    Attributes:
        data: the bytes.
        sequence: number of the frame; it comes first in the head.
        pushes_at: offset of the pushes.
        pulls_at: offset of the pulls.
        gradient_bytes: bytes of partial gradients among the pushes.
    """

    data: bytes
    sequence: int
    pushes_at: int
    pulls_at: int
    gradient_bytes: int = 0

    @property
    def pushes(self) -> bool:
        """Whether the frame pushes anything."""
        return self.pulls_at > self.pushes_at

    def without_pushes(self) -> Self:
        """Returns the frame without its pushes."""
        if not self.pushes:
            return self
        data = self.data[: self.pushes_at] + self.data[self.pulls_at :]
        return type(self)(data, self.sequence, self.pushes_at, self.pushes_at)

    def without_pulls(self) -> Self:
        """Returns the frame without its pulls."""
        return replace(self, data=self.data[: self.pulls_at])

    def numbered(self, sequence: int) -> Self:
        """Returns the frame with another number."""
        if sequence == self.sequence:
            return self
        old, new = (_sequence_field(number) for number in (self.sequence, sequence))
        longer = len(new) - len(old)
        data, pushes_at, pulls_at = new + self.data[len(old) :], self.pushes_at + longer, self.pulls_at + longer
        return type(self)(data, sequence, pushes_at, pulls_at, self.gradient_bytes)


def encode_parcel(
    parcel: Parcel,
    spec: TableSpec,
    sequence: int,
    *,
    epoch: int,
    wait_seconds: float = 0.0,
    iteration: int = 0,
    trace_parent: str = "",
) -> FrameMessage:
    """Encodes a parcel as a frame, without its empty parts.

    Args:
        parcel: for one server, small enough for one frame.
        spec: the table.
        sequence: number of the frame, from 1.
        epoch: of the plan.
        wait_seconds: seconds that pulls may wait for their versions, and gradients for the versions before theirs.
        iteration: the one in which another worker trains the rows; 0: the frame is for a parameter server.
        trace_parent: the worker's span of the iteration, as W3C's traceparent; empty: there is none.
    """
    rows, gradients, pulls = parcel.rows, parcel.gradients, parcel.pulls
    data, pushes_at, pulls_at = native.write_frame(
        sequence,
        spec.name,
        epoch,
        min(_LONGEST_WAIT_MS, round(wait_seconds * 1000)),
        iteration,
        rows.ids,
        rows.versions,
        rows.rows,
        rows.slots,
        gradients.ids,
        gradients.targets,
        gradients.contributors,
        gradients.steps,
        gradients.rates,
        gradients.gradients,
        gradients.slots,
        spec.dimension if len(gradients) else 0,
        gradients.worker,
        pulls.ids,
        pulls.versions,
        pulls.stateless,
        trace_parent,
    )
    gradient_bytes = len(gradients) * spec.gradient_transfer_bytes
    return FrameMessage(data, sequence, pushes_at, pulls_at, gradient_bytes)


class Answer:
    """One message of a parameter server, or of another worker.

    Attributes:
        message: the bytes.
        parts: the fields of the message, and where in it the rows lie.
        refusal: the error with which the frame was refused, or None.
        credit: the credit that the server grants; None in an answer to a frame.

    Raises:
        Internal: the bytes are no such message.
    """

    __slots__ = ("credit", "message", "parts", "refusal")

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.refusal: common_pb2.Refusal | None = None
        self.credit: Credit | None = None
        try:
            self.parts = native.AnswerParts(message)
            if self.parts.refused or self.parts.credit:  # rare, and so left to protobuf
                parsed = ps_pb2.ExchangeResponse.FromString(message)
                self.refusal = parsed.refusal if self.parts.refused else None
                self.credit = Credit(parsed.credit.frames, parsed.credit.bytes) if self.parts.credit else None
        except DecodeError:
            raise Internal(f"a server has sent {len(message)} bytes in an exchange that are no answer") from None
        except ValueError as error:
            raise Internal(f"a server has sent {len(message)} bytes in an exchange: {error}") from None


class PulledRows:
    """The rows that a frame pulls, and the array that receives them.

    A row that was never trained is not sent: it is made here, as the server would make it, bit for bit.

    Attributes:
        initial: number of rows so far that were made here.
        missing: number of rows that have not arrived.
        bytes_missing: the bytes of these rows.

    Args:
        pulls: of the frame.
        rows: float32 [.., W], the array. Only the first D floats of a row without optimizer state are written.
        spec: the table.
    """

    def __init__(self, pulls: Pulls, rows: NDArray[np.float32], spec: TableSpec) -> None:
        self._rows = rows
        self._ids = pulls.ids
        self._places = pulls.places
        self._stateless = pulls.stateless
        self._dimension, self._seed, self._scale = spec.dimension, spec.seed, spec.init_scale
        self._bytes = pulls.answer_bytes(spec)
        self.restart()

    def restart(self) -> None:
        """Expects all rows from the first one on, as is so when their frame is sent."""
        self._arrived = np.zeros(len(self._places), np.bool_)
        self._cursor = self.initial = 0
        self.missing = len(self._places)
        self.bytes_missing = self._bytes

    @property
    def wanted(self) -> int:
        """The number of rows that the frame pulls."""
        return len(self._places)

    def place(self, answer: Answer) -> None:
        """Copies the rows of an answer to their places.

        Raises:
            Internal: a row is not whole, was not asked for, or comes a second time.
        """
        try:
            count, initial, self._cursor, size = answer.parts.scatter(
                answer.message,
                self._rows,
                self._ids,
                self._places,
                self._arrived,
                self._stateless,
                self._dimension,
                self._seed,
                self._scale,
                self._cursor,
            )
        except ValueError as error:
            raise Internal(f"a pull of {self.wanted} rows was answered wrongly: {error}") from None
        self.initial += initial
        self.missing -= count
        self.bytes_missing -= size


def _sequence_field(sequence: int) -> bytes:
    return ps_pb2.ExchangeRequest(sequence=sequence).SerializeToString()
