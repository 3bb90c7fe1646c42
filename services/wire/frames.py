"""A client's end of the exchange on the wire: the frames that it sends and the answers that it gets (protos/ps.proto).

Frames for another worker, and its answers, are a part of these (protos/worker.proto, Deliver). Native code writes and
reads the messages, so that rows are copied once.
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
    """The message of a frame, in three parts: its head, what it pushes, what it pulls.

    Attributes:
        data: the bytes.
        sequence: number of the frame; it comes first in the head.
        pushes_at: where the pushes begin.
        pulls_at: where the pulls begin.
    """

    data: bytes
    sequence: int
    pushes_at: int
    pulls_at: int

    @property
    def pushes(self) -> bool:
        """Whether anything is pushed."""
        return self.pulls_at > self.pushes_at

    def without_pushes(self) -> Self:
        """Returns the frame that only pulls."""
        if not self.pushes:
            return self
        data = self.data[: self.pushes_at] + self.data[self.pulls_at :]
        return type(self)(data, self.sequence, self.pushes_at, self.pushes_at)

    def without_pulls(self) -> Self:
        """Returns the frame that only pushes."""
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
    """Encodes a parcel as a frame; what is empty is left out.

    Args:
        parcel: for one server, small enough for one frame.
        spec: the table.
        sequence: number of the frame, from 1.
        epoch: of the plan.
        wait_seconds: how long the pulls may wait for their versions, and gradients for those before theirs.
        iteration: for which another worker gets the rows; 0: the frame is for a parameter server.
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
        said: what they say.
        refusal: why the frame was refused; None if it was not.
        credit: what the server grants; None if the message is about something else.
    """

    __slots__ = ("credit", "message", "refusal", "said")

    def __init__(self, message: bytes) -> None:
        """Reads a message. Raises Internal if it is none."""
        self.message = message
        self.refusal: common_pb2.Refusal | None = None
        self.credit: Credit | None = None
        try:
            self.said = native.AnswerParts(message)
            if self.said.refused or self.said.credit:  # few are, and native code reads no further than that
                parsed = ps_pb2.ExchangeResponse.FromString(message)
                self.refusal = parsed.refusal if self.said.refused else None
                self.credit = Credit(parsed.credit.frames, parsed.credit.bytes) if self.said.credit else None
        except DecodeError:
            raise Internal(f"a server has sent {len(message)} bytes in an exchange that are no answer") from None
        except ValueError as error:
            raise Internal(f"a server has sent {len(message)} bytes in an exchange: {error}") from None


class Arrivals:
    """The rows that a frame asks for, on their way to their places.

    Attributes:
        missing: how many have not come.
        bytes_missing: the bytes of these.

    Args:
        pulls: what the frame asks for.
        rows: float32 [.., W], where they go. Of a row that is wanted without its optimizer state, the first D
            floats are written.
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
        """Says that the rows come from the first one on, as they do when their frame is sent."""
        self._arrived = np.zeros(len(self._places), np.bool_)
        self._cursor = 0
        self.missing = len(self._places)
        self.bytes_missing = self._bytes

    @property
    def wanted(self) -> int:
        """How many rows the frame asks for."""
        return len(self._places)

    def take(self, answer: Answer) -> None:
        """Puts the rows of an answer in their places.

        Raises:
            Internal: they are not whole, not asked for, or come a second time.
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
