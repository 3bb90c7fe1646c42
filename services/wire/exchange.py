"""Frames of the exchange and their answers: encoders beside decoders, for both ends (protos/ps.proto, Exchange).

A frame travels as the bytes of its message: gRPC hands them over as they are, so that whoever reads rows copies them
once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from protos import ps_pb2
from services.domain.errors import InvalidArgument
from services.domain.rows import Push
from services.domain.tables import TableSpec
from services.wire.arrays import decode_array, decode_column, encode_array
from services.wire.rows import CHUNK_BYTES, encode_gradients, encode_rows

# A frame, and an answer: a MiB of payload, and what stands beside it (the name of a table, lengths, numbers).
MAX_FRAME_BYTES = CHUNK_BYTES + 4096

_POSITION_BYTES = 4
_SEQUENCE_TAG = 0x08  # field 1, a varint: the first byte of every frame that a protobuf library has written
_VARINT_BYTES = 10  # of the longest


@dataclass(frozen=True, slots=True)
class Credit:
    """What may be unanswered on a stream at a time.

    Attributes:
        frames: that were sent and have not got their last answer.
        bytes: of their messages, added up.
    """

    frames: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What has become of a frame's push.

    Attributes:
        new: rows and gradients that were new to the server.
        already_known: repeated ones, which the server has ignored.
    """

    new: int
    already_known: int


@dataclass(frozen=True, slots=True)
class Pulls:
    """The rows that a frame asks for.

    Attributes:
        ids: uint64 [r], distinct.
        versions: int64 [r], that the rows must have.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def rows_per_answer(spec: TableSpec) -> int:
    """Returns how many rows of a table fit an answer; at least one."""
    return max(1, CHUNK_BYTES // (spec.row_bytes + _POSITION_BYTES))


def encode_frame(
    sequence: int,
    table: str,
    push: Push | None = None,
    pulls: Pulls | None = None,
    *,
    epoch: int = 0,
    wait_seconds: float = 0.0,
) -> bytes:
    """Encodes a frame; what is empty is left out.

    Args:
        sequence: its number in the stream, from 1.
        table: name of the table.
        push: rows and gradients to store.
        pulls: rows to read after that.
        epoch: of the plan.
        wait_seconds: how long the pulls may wait for their versions.
    """
    frame = ps_pb2.ExchangeRequest(sequence=sequence, table=table, epoch=epoch)
    if push is not None and len(push.rows):
        encode_rows(push.rows, frame.rows)
    if push is not None and len(push.gradients):
        encode_gradients(push.gradients, frame.gradients)
    if pulls is not None and len(pulls):
        frame.pulls.ids = encode_array(pulls.ids, np.uint64, "pulls.ids")
        frame.pulls.versions = encode_array(pulls.versions, np.int64, "pulls.versions")
        frame.wait_ms = min(2**32 - 1, round(wait_seconds * 1000))
    return frame.SerializeToString()


def parse_frame(data: bytes) -> ps_pb2.ExchangeRequest:
    """Parses a frame. Raises InvalidArgument if these bytes are none."""
    try:
        return ps_pb2.ExchangeRequest.FromString(data)
    except DecodeError:
        raise InvalidArgument(f"these {len(data)} bytes are no ExchangeRequest") from None


def sequence_of(data: bytes) -> int:
    """Returns the sequence of a frame, as far as that can be read of any bytes; 0 if it cannot."""
    if not data or data[0] != _SEQUENCE_TAG:
        return 0
    value = 0
    for shift, byte in enumerate(data[1 : 1 + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value if value < 2**64 else 0
    return 0


def decode_pulls(message: ps_pb2.PullBlock) -> Pulls:
    """Reads what a frame asks for."""
    ids = decode_column(message.ids, np.uint64, "pulls.ids")
    return Pulls(ids, decode_array(message.versions, np.int64, (len(ids),), "pulls.versions"))


def encode_credit(credit: Credit) -> bytes:
    """Encodes the first message of a server."""
    granted = ps_pb2.Credit(frames=credit.frames, bytes=credit.bytes)
    return ps_pb2.ExchangeResponse(credit=granted).SerializeToString()


def decode_credit(message: ps_pb2.ExchangeResponse) -> Credit:
    """Reads the credit of a stream's first message. Raises InvalidArgument if it grants none."""
    if not message.HasField("credit") or not message.credit.frames or not message.credit.bytes:
        raise InvalidArgument("the first message of an exchange grants no credit")
    return Credit(message.credit.frames, message.credit.bytes)


def encode_stored(sequence: int, stored: Stored | None) -> bytes:
    """Encodes the only answer to a frame that pulls nothing; `stored` is None if it pushes nothing, either."""
    answer = _answer(sequence, stored)
    answer.done = True
    return answer.SerializeToString()


def encode_refusal(sequence: int, stored: Stored | None, code: int, reason: str, message: str) -> bytes:
    """Encodes the answer that ends a frame with an error; `stored` is what it has stored, if nobody was told yet."""
    answer = _answer(sequence, stored)
    answer.refusal.code = code
    answer.refusal.reason = reason
    answer.refusal.message = message
    answer.done = True
    return answer.SerializeToString()


def _answer(sequence: int, stored: Stored | None) -> ps_pb2.ExchangeResponse:
    answer = ps_pb2.ExchangeResponse(sequence=sequence)
    if stored is not None:
        answer.stored = True
        answer.newly_stored = stored.new
        answer.already_known = stored.already_known
    return answer


def answered_positions(message: ps_pb2.ExchangeResponse, spec: TableSpec, cursor: int, pulls: int) -> NDArray[np.int64]:
    """Returns which pulls of a frame the rows of an answer are for, int64 [c], ascending.

    Args:
        message: the answer.
        spec: the table.
        cursor: the position behind the last one of the frame's answer before; 0 at first.
        pulls: how many rows the frame asks for.

    Raises:
        InvalidArgument: the rows are not whole ones, or not of this frame.
    """
    count, rest = divmod(len(message.rows), spec.row_bytes)
    if rest:
        raise InvalidArgument(f"rows has {len(message.rows)} bytes, a row has {spec.row_bytes}")
    if message.positions:
        positions = decode_array(message.positions, np.uint32, (count,), "positions").astype(np.int64)
    else:
        positions = np.arange(cursor, cursor + count)
    if count and not (positions[-1] < pulls and (positions[1:] > positions[:-1]).all()):
        raise InvalidArgument(f"an answer has rows for positions up to {positions.max()}, the frame asks for {pulls}")
    return positions
