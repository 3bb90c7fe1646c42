"""A client's side of the exchange: encoding of frames, and decoding of answers (protos/ps.proto, Exchange).

Frames to another worker, and its answers, use a subset of the same fields (protos/worker.proto, Deliver). Native code
writes and reads the messages, so that rows are copied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from esd.native import wire as native
from esd.protos import common_pb2, ps_pb2
from esd.services.domain.errors import Internal
from esd.services.domain.frames import Parcel, Pulls
from esd.services.domain.tables import TableSpec
from esd.services.wire.exchange import Credit

_LONGEST_WAIT_MS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Message:
    """The message of a frame, in three parts: head, pushes and pulls.

    Attributes:
        data: the bytes.
        sequence: the number of the frame; it is the first field of the head.
        pushes_at: the offset of the pushes in `data`.
        pulls_at: the offset of the pulls in `data`.
    """

    data: bytes
    sequence: int
    pushes_at: int
    pulls_at: int

    @property
    def pushes(self) -> bool:
        """Whether the frame has pushes."""
        return self.pulls_at > self.pushes_at

    def without_pushes(self) -> Self:
        """Returns the frame with its pulls only."""
        if not self.pushes:
            return self
        data = self.data[: self.pushes_at] + self.data[self.pulls_at :]
        return type(self)(data, self.sequence, self.pushes_at, self.pushes_at)

    def without_pulls(self) -> Self:
        """Returns the frame with its pushes only."""
        return type(self)(self.data[: self.pulls_at], self.sequence, self.pushes_at, self.pulls_at)

    def numbered(self, sequence: int) -> Self:
        """Returns the frame with another number."""
        if sequence == self.sequence:
            return self
        old, new = (_sequence_field(number) for number in (self.sequence, sequence))
        longer = len(new) - len(old)
        return type(self)(new + self.data[len(old) :], sequence, self.pushes_at + longer, self.pulls_at + longer)


def encode_parcel(
    parcel: Parcel, spec: TableSpec, sequence: int, *, epoch: int, wait_seconds: float = 0.0, iteration: int = 0
) -> Message:
    """Encodes a parcel as a frame; empty parts are left out.

    Args:
        parcel: rows, gradients and pulls for one server, small enough for one frame.
        spec: the table.
        sequence: the number of the frame, from 1.
        epoch: the epoch of the plan.
        wait_seconds: the longest wait of pulls for their versions, and of gradients for the versions before theirs.
        iteration: the iteration in which another worker trains the rows; 0 for a frame to a parameter server.
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
        rows.values.table,
        rows.values.slots,
        gradients.ids,
        gradients.targets,
        gradients.contributors,
        gradients.steps,
        gradients.rates,
        gradients.values.table,
        gradients.values.slots,
        spec.dimension if len(gradients) else 0,
        gradients.worker,
        pulls.ids,
        pulls.versions,
        pulls.stateless,
    )
    return Message(data, sequence, pushes_at, pulls_at)


class Answer:
    """One message of a parameter server, or of another worker.

    Attributes:
        message: the bytes.
        said: the decoded fields, except refusal and credit.
        refusal: the refusal of the frame; None if it was not refused.
        credit: the limits that the server grants; None if the message grants none.
    """

    __slots__ = ("credit", "message", "refusal", "said")

    def __init__(self, message: bytes) -> None:
        """Decodes a message. Raises Internal if the bytes are no answer."""
        self.message = message
        self.refusal: common_pb2.Refusal | None = None
        self.credit: Credit | None = None
        try:
            self.said = native.AnswerParts(message)
            if self.said.refused or self.said.credit:  # both are rare, so only their presence is read natively
                parsed = ps_pb2.ExchangeResponse.FromString(message)
                self.refusal = parsed.refusal if self.said.refused else None
                self.credit = Credit(parsed.credit.frames, parsed.credit.bytes) if self.said.credit else None
        except DecodeError:
            raise Internal(f"a server sent {len(message)} bytes in an exchange that are no answer") from None
        except ValueError as error:
            raise Internal(f"a server sent an answer of {len(message)} bytes that cannot be read: {error}") from None


class Arrivals:
    """Places the rows of a frame's answers in a buffer, and counts the missing rows.

    Attributes:
        missing: the number of rows that have not arrived.
        bytes_missing: the size of the missing rows.

    Args:
        pulls: the pulls of the frame.
        rows: float32 [.., W], the buffer. A row without optimizer state fills the first D floats of its place.
        spec: the table.
    """

    def __init__(self, pulls: Pulls, rows: NDArray[np.float32], spec: TableSpec) -> None:
        self._rows = rows
        self._places = pulls.places
        self._stateless = pulls.stateless
        self._dimension = spec.dimension
        self._bytes = pulls.answer_bytes(spec)
        self.start()

    def start(self) -> None:
        """Expects all rows again, because the frame is sent (or sent again)."""
        self._arrived = np.zeros(len(self._places), np.bool_)
        self._cursor = 0
        self.missing = len(self._places)
        self.bytes_missing = self._bytes

    @property
    def wanted(self) -> int:
        """The number of rows that the frame pulls."""
        return len(self._places)

    def take(self, answer: Answer) -> None:
        """Copies the rows of an answer to their places.

        Raises:
            Internal: a row is incomplete, or the frame does not pull it, or it has arrived before.
        """
        try:
            count, self._cursor = answer.said.scatter(
                answer.message,
                self._rows,
                self._places,
                self._arrived,
                self._stateless,
                self._dimension,
                self._cursor,
            )
        except ValueError as error:
            raise Internal(f"a pull of {self.wanted} rows was answered wrongly: {error}") from None
        self.missing -= count
        self.bytes_missing -= answer.said.row_bytes


def _sequence_field(sequence: int) -> bytes:
    return ps_pb2.ExchangeRequest(sequence=sequence).SerializeToString()
