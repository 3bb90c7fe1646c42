"""Messages of the stream between a worker and the dispatcher (protos/dispatcher.proto, Attend), in both directions.

gRPC passes them as bytes, so that the dispatcher can refuse a malformed message without ending the stream, and each
plan is encoded only once, in the planner's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esd.protos import common_pb2
from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.plans import PlanMessage
from esd.services.domain.reports import FailureReport, FlushReport, IterationReport, Lease, Report, WorkerPhase
from esd.services.wire.messages import parse
from esd.services.wire.pieces import PieceBuffer, pieces_of
from esd.services.wire.plans import decode_iteration_plans, decode_plan_messages
from esd.services.wire.report_reader import read_iteration_reports
from esd.services.wire.reports import (
    decode_failure_report,
    decode_flush_report,
    decode_iteration_report,
    decode_phase,
    encode_failure_report,
    encode_flush_report,
    encode_iteration_report,
    encode_phase,
)

_PIECE_TAG = b"\x42"  # the first byte of a message with a piece: field 8, of a length


@dataclass(frozen=True, slots=True)
class Attendance:
    """The first message of a worker's stream.

    Attributes:
        lease_id: the worker's lease.
        from_iteration: the first plan to send; the dispatcher ignores it unless `epoch` is the present epoch.
        epoch: the epoch of the worker.
    """

    lease_id: str
    from_iteration: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a message.

    Attributes:
        sequence: the sequence number of the message; 0 if it could not be read.
        code: the number of gRPC's status code.
        reason: the name of the error's class.
        details: the text of the error.
    """

    sequence: int
    code: int
    reason: str
    details: str


@dataclass(frozen=True, slots=True)
class Response:
    """A message of the dispatcher.

    Attributes:
        received: the sequence number up to which every message of the worker is recorded or refused.
        refusals: the refused messages.
        messages: plans and other messages to the worker, in order; empty if the message is only an acknowledgement.
    """

    received: int
    refusals: Sequence[Refusal]
    messages: Sequence[PlanMessage]


def encode_attendance(lease: Lease, from_iteration: int, epoch: int) -> bytes:
    """Encodes the first message of a worker."""
    attendance = pb.Attendance(lease_id=lease.lease_id, from_iteration=from_iteration, epoch=epoch)
    return pb.AttendRequest(attendance=attendance).SerializeToString()


def encode_request(sequence: int, *said: bytes) -> bytes:
    """Joins encoded reports to one numbered message: any reports of iterations, then at most one other report."""
    # Protobuf merges concatenated messages of one type, so no report has to be encoded again.
    return b"".join((pb.AttendRequest(sequence=sequence).SerializeToString(), *said))


def encode_said(said: WorkerPhase | Report) -> bytes:
    """Encodes a heartbeat with the worker's phase, or a report, for `encode_request`."""
    match said:
        case WorkerPhase():
            request = pb.AttendRequest(heartbeat=encode_phase(said))
        case IterationReport():
            request = pb.AttendRequest(iterations=[encode_iteration_report(said)])
        case FlushReport():
            request = pb.AttendRequest(flush=encode_flush_report(said))
        case FailureReport():
            request = pb.AttendRequest(failure=encode_failure_report(said))
    return request.SerializeToString()


def decode_request(data: bytes) -> Attendance | Sequence[WorkerPhase | Report]:
    """Decodes a message of a worker: the first message of its stream, or its reports, in order.

    Raises:
        InvalidArgument: the bytes are no such message, or this version does not know its kind, or a value in it is out
            of range.
    """
    if reports := read_iteration_reports(data):
        return reports
    message = parse(pb.AttendRequest, data)
    said: list[WorkerPhase | Report] = [decode_iteration_report(report) for report in message.iterations]
    match message.WhichOneof("body"):
        case "heartbeat":
            said.append(decode_phase(message.heartbeat))
        case "flush":
            said.append(decode_flush_report(message.flush))
        case "failure":
            said.append(decode_failure_report(message.failure))
        case "attendance":
            attendance = message.attendance
            return Attendance(attendance.lease_id, attendance.from_iteration, attendance.epoch)
    if not said:
        raise InvalidArgument("body is not set, or of a kind that this version does not know")
    return said


def encode_answer(received: int, refusals: Sequence[Refusal]) -> bytes:
    """Encodes an acknowledgement and refusals. Concatenated with plan messages, it forms one message with them."""
    encoded = [
        common_pb2.Refusal(sequence=each.sequence, code=each.code, reason=each.reason, message=each.details)
        for each in refusals
    ]
    return pb.AttendResponse(received=received, refusals=encoded).SerializeToString()


def in_pieces(message: bytes, longest: int) -> Sequence[bytes]:
    """Returns a message of the dispatcher as it is, or a long one as messages that each have a piece of it.

    Args:
        message: the encoded message.
        longest: the most bytes of a message that the worker accepts.
    """
    pieces = [pb.AttendResponse(piece=piece).SerializeToString() for piece in pieces_of(message, longest)]
    return pieces or [message]


class Joined:
    """The pieces of a long message of the dispatcher, until it is complete."""

    def __init__(self) -> None:
        self._pieces = PieceBuffer()

    def add(self, data: bytes) -> bytes | None:
        """Returns a message of the dispatcher that is complete with these bytes; None if more pieces follow.

        Raises:
            InvalidArgument: the bytes are no message, or not the next piece of one.
        """
        if data[:1] != _PIECE_TAG:
            if self._pieces:
                raise InvalidArgument(f"a message follows {len(self._pieces)} pieces of one that is not complete")
            return data
        return self._pieces.add(parse(pb.AttendResponse, data).piece)


def decode_response(data: bytes) -> Response:
    """Decodes a message of the dispatcher. Raises InvalidArgument if it is malformed."""
    plans, rest = decode_iteration_plans(data) or ([], data)
    message = parse(pb.AttendResponse, rest)
    refusals = [Refusal(each.sequence, each.code, each.reason, each.message) for each in message.refusals]
    return Response(message.received, refusals, [*plans, *decode_plan_messages(message)])
