"""Messages of sums at the parameter servers (protos/ps.proto, Sum)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.protos import common_pb2, ps_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sum_pieces import LONGEST_PIECE, PieceName, SumMember, SumPiece, piece_values
from esd.services.domain.worker_set import MAX_WORKERS, WorkerSet
from esd.services.wire.arrays import decode_array, encode_array
from esd.services.wire.messages import parse

MAX_MESSAGE_BYTES = LONGEST_PIECE + 4096
MAX_PIECES = 64  # of one message

_TYPES: dict[np.dtype[Any], ps_pb2.SumType] = {
    np.dtype(np.float32): ps_pb2.SUM_TYPE_FLOAT32,
    np.dtype(np.float64): ps_pb2.SUM_TYPE_FLOAT64,
    np.dtype(np.int32): ps_pb2.SUM_TYPE_INT32,
    np.dtype(np.int64): ps_pb2.SUM_TYPE_INT64,
}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()} | {ps_pb2.SUM_TYPE_UNSPECIFIED: np.dtype(np.float32)}


def encode_member(member: SumMember) -> bytes:
    """Encodes the first message of a worker."""
    message = ps_pb2.SumMember(
        table=member.table,
        epoch=member.epoch,
        worker=member.slot,
        members=member.members.words[0],
        more_members=member.members.words[1],
        wait_ms=round(1000 * member.patience),
        instance=member.instance,
        resumes=member.resumes,
    )
    return ps_pb2.SumRequest(member=message, sums=member.sums).SerializeToString()


def decode_member(data: bytes) -> SumMember:
    """Decodes the first message of a worker.

    Raises:
        InvalidArgument: the message introduces no worker, or a worker that is not among the members.
    """
    message = _request(data)
    if message.WhichOneof("body") != "member":
        raise InvalidArgument("the first message of a stream of sums names its group, and this one does not")
    member = message.member
    members = WorkerSet.of_words((member.members, member.more_members))
    if member.worker >= MAX_WORKERS or member.worker not in members:
        raise InvalidArgument(f"worker slot {member.worker} is not one of the members, {members}")
    if message.sums and not member.resumes:
        raise InvalidArgument(f"worker slot {member.worker} has {message.sums} pieces of sums before its first stream")
    patience = member.wait_ms / 1000
    return SumMember(
        member.table, member.epoch, member.worker, members, patience, member.instance, member.resumes, message.sums
    )


def encode_pieces(pieces: Iterable[SumPiece] | None, sums: int) -> bytes:
    """Encodes a later message of a worker.

    Args:
        pieces: at least one, which fit a message (`LONGEST_PIECE`); None: the worker leaves.
        sums: the number of pieces of sums that the worker has.
    """
    if pieces is None:
        return ps_pb2.SumRequest(farewell=ps_pb2.SumFarewell(), sums=sums).SerializeToString()
    message = ps_pb2.SumRequest(sums=sums)
    for piece in pieces:
        message.pieces.add(**_fields(piece))
    return message.SerializeToString()


def decode_pieces(data: bytes) -> tuple[list[SumPiece] | None, int]:
    """Decodes a later message of a worker: returns the arguments of `encode_pieces`.

    Raises:
        InvalidArgument: the message has no piece and no farewell, or too many pieces, or another number of values than
            their places need.
    """
    message = _request(data)
    kind = message.WhichOneof("body")
    if kind == "farewell":
        return None, message.sums
    if kind is not None or not message.pieces:
        raise InvalidArgument("a message of a stream of sums is no piece of a vector")
    if len(message.pieces) > MAX_PIECES:
        raise InvalidArgument(f"a message has {len(message.pieces)} pieces of vectors, and at most {MAX_PIECES} may be")
    return _decoded(message.pieces), message.sums


def encode_welcome(pieces: int) -> bytes:
    """Encodes the first message of a server, which has so many pieces of the worker."""
    return ps_pb2.SumResponse(welcome=ps_pb2.SumWelcome(pieces=pieces)).SerializeToString()


def encode_sum(piece: SumPiece) -> bytes:
    """Encodes a later message of a server. Joined messages are one message with all their pieces."""
    message = ps_pb2.SumResponse()
    message.pieces.add(**_fields(piece))
    return message.SerializeToString()


def encode_end(code: int, reason: str, message: str) -> bytes:
    """Encodes the refusal that ends a stream."""
    return ps_pb2.SumResponse(refusal=common_pb2.Refusal(code=code, reason=reason, message=message)).SerializeToString()


def decode_sum(data: bytes) -> list[SumPiece] | common_pb2.Refusal | int:
    """Decodes a message of a server: pieces of sums, a refusal, or the number in its welcome.

    Raises:
        InvalidArgument: a piece has another number of values than its place needs.
    """
    message = parse(ps_pb2.SumResponse, data)
    match message.WhichOneof("body"):
        case "welcome":
            return message.welcome.pieces
        case "refusal":
            return message.refusal
    return _decoded(message.pieces)


def _request(data: bytes) -> ps_pb2.SumRequest:
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidArgument(f"the message has {len(data)} bytes, and at most {MAX_MESSAGE_BYTES} are allowed")
    return parse(ps_pb2.SumRequest, data)


def _fields(piece: SumPiece) -> dict[str, Any]:
    name, values = piece.name, piece.values
    return {
        "iteration": name.iteration,
        "number": name.number,
        "start": name.start,
        "length": name.length,
        "type": _TYPES[name.dtype],
        "values": b"" if values is None else encode_array(values, name.dtype, "piece.values"),
        "unwanted": not piece.wanted,
    }


def _decoded(messages: Sequence[ps_pb2.SumPiece]) -> list[SumPiece]:
    return [_piece(each) for each in messages]


def _piece(message: ps_pb2.SumPiece) -> SumPiece:
    dtype = _DTYPES.get(message.type)
    if dtype is None:
        raise InvalidArgument(f"piece.type is {message.type}, which names no type of values")
    whole = piece_values(dtype, message.length)
    if message.start >= message.length or message.start % whole:
        raise InvalidArgument(
            f"piece.start is {message.start}, it must be a multiple of {whole} below the length, {message.length}"
        )
    name = PieceName(message.iteration, message.number, message.start, message.length, dtype)
    data = message.values
    values: NDArray[np.generic] | None = None
    if data:
        values = decode_array(data, dtype, (name.values,), "piece.values").astype(dtype, copy=False)
    return SumPiece(name, values, not message.unwanted)
