"""A server's end of the exchange on the wire: frames as it reads them, and answers (protos/ps.proto, Exchange).

A worker that gets rows from another one answers in the same way (protos/worker.proto, Deliver).

The client's end is in services/wire/frames.py. Frames for rows in memory, and answers with rows, are native
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
class WantedRows:
    """What a frame pulls.

    Attributes:
        ids: uint64 [r].
        versions: int64 [r], which the rows must have.
        stateless: how many of them, the last ones, are wanted without their optimizer state.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    stateless: int


def rows_per_answer(row_bytes: int) -> int:
    """Returns how many rows of so many bytes fit an answer; at least one."""
    return max(1, CHUNK_BYTES // (row_bytes + _POSITION_BYTES))


def parse_frame(data: bytes) -> ps_pb2.ExchangeRequest:
    """Parses a frame. Raises InvalidArgument if these bytes are none."""
    return parse(ps_pb2.ExchangeRequest, data)


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


def decode_pulls(message: ps_pb2.PullBlock) -> WantedRows:
    """Reads what a frame pulls."""
    ids = decode_column(message.ids, np.uint64, "pulls.ids")
    if message.stateless > len(ids):
        raise InvalidArgument(
            f"{message.stateless} rows are wanted without their optimizer state, the frame pulls {len(ids)}"
        )
    return WantedRows(ids, decode_array(message.versions, np.int64, (len(ids),), "pulls.versions"), message.stateless)


def encode_credit(credit: Credit) -> bytes:
    """Encodes the first message of a server."""
    granted = ps_pb2.Credit(frames=credit.frames, bytes=credit.bytes)
    return ps_pb2.ExchangeResponse(credit=granted).SerializeToString()


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
