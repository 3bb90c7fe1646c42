"""A server's side of the exchange: decoding of frames, and encoding of answers (protos/ps.proto, Exchange).

A worker that receives rows from another worker answers in the same way (protos/worker.proto, Deliver).

The client's side is in services/wire/frames.py. Frames for rows in memory, and answers with rows, are native
(esd.native.rows).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.wire.arrays import decode_array, decode_column
from esd.services.wire.messages import parse
from esd.services.wire.rows import CHUNK_BYTES

# The size of a frame and of an answer: a MiB of payload, plus the name of a table, lengths and numbers.
MAX_FRAME_BYTES = CHUNK_BYTES + 4096

_MARK_BYTES = 5  # of a row in an answer: its position, and whether it is an initial one
_SEQUENCE_TAG = 0x08  # field 1, a varint: the first byte of every frame, since protobuf libraries write fields in order
_VARINT_BYTES = 10  # length of the longest varint


@dataclass(frozen=True, slots=True)
class Credit:
    """The limits on unanswered frames of a stream.

    Attributes:
        frames: largest number of frames without their last answer.
        bytes: largest total size of these frames' messages.
    """

    frames: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of a frame's pushes.

    Attributes:
        new: number of rows and gradients that the server has stored.
        already_known: number of repeated rows and gradients, which the server has ignored.
    """

    new: int
    already_known: int


@dataclass(frozen=True, slots=True)
class WantedRows:
    """The pulls of a frame.

    Attributes:
        ids: uint64 [r], the ids of the rows.
        versions: int64 [r], the versions that the rows must have.
        stateless: the number of rows, at the end, to answer without their optimizer state.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    stateless: int


def rows_per_answer(row_bytes: int) -> int:
    """Returns the number of rows of `row_bytes` bytes that fit an answer; at least one."""
    return max(1, CHUNK_BYTES // (row_bytes + _MARK_BYTES))


def parse_frame(data: bytes) -> ps_pb2.ExchangeRequest:
    """Parses a frame. Raises InvalidArgument if the bytes are no frame."""
    return parse(ps_pb2.ExchangeRequest, data)


def sequence_of(data: bytes) -> int:
    """Returns the sequence number of a frame; 0 if it cannot be read.

    It reads the first field alone, so that the refusal of a malformed frame can name its number.
    """
    if not data or data[0] != _SEQUENCE_TAG:
        return 0
    value = 0
    for shift, byte in enumerate(data[1 : 1 + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value if value < 2**64 else 0
    return 0


def decode_pulls(message: ps_pb2.PullBlock) -> WantedRows:
    """Decodes the pulls of a frame.

    Raises:
        InvalidArgument: the columns differ in length, or `stateless` exceeds the number of rows.
    """
    ids = decode_column(message.ids, np.uint64, "pulls.ids")
    if message.stateless > len(ids):
        raise InvalidArgument(f"pulls.stateless is {message.stateless}, the frame pulls only {len(ids)} rows")
    return WantedRows(ids, decode_array(message.versions, np.int64, (len(ids),), "pulls.versions"), message.stateless)


def encode_credit(credit: Credit) -> bytes:
    """Encodes the first message of a server."""
    granted = ps_pb2.Credit(frames=credit.frames, bytes=credit.bytes)
    return ps_pb2.ExchangeResponse(credit=granted).SerializeToString()


def encode_stored(sequence: int, stored: Stored, *, last: bool = True) -> bytes:
    """Encodes the answer that acknowledges the pushes of a frame, and whether it is the last one."""
    answer = _answer(sequence, stored)
    answer.done = last
    return answer.SerializeToString()


def encode_refusal(sequence: int, stored: Stored | None, code: int, reason: str, message: str) -> bytes:
    """Encodes the answer that ends a frame with an error; `stored` is the result of its pushes, if not yet sent."""
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
