"""Messages of the stream between a worker and the dispatcher (protos/dispatcher.proto, Attend), both ways.

They travel as bytes, so that a message that is none can be refused without ending the stream, and a plan is encoded
only once, in the planner's thread.
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


@dataclass(frozen=True, slots=True)
class Attendance:
    """How a worker opens its stream.

    Attributes:
        lease_id: its lease.
        from_iteration: the first plan that it wants; it counts only while `epoch` is the job's.
        epoch: that the worker is in.
    """

    lease_id: str
    from_iteration: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message was refused.

    Attributes:
        sequence: of the message; 0 if it could not be read.
        code: number of gRPC's status code.
        reason: name of the error's class.
        details: the text.
    """

    sequence: int
    code: int
    reason: str
    details: str


@dataclass(frozen=True, slots=True)
class Response:
    """A message of the dispatcher.

    Attributes:
        received: every message of the worker up to this sequence is taken in or refused.
        refusals: those that were refused.
        messages: what the worker is told to do, in order; none when the message only answers.
    """

    received: int
    refusals: Sequence[Refusal]
    messages: Sequence[PlanMessage]


def encode_attendance(lease: Lease, from_iteration: int, epoch: int) -> bytes:
    """Encodes the first message of a worker."""
    attendance = pb.Attendance(lease_id=lease.lease_id, from_iteration=from_iteration, epoch=epoch)
    return pb.AttendRequest(attendance=attendance).SerializeToString()


def encode_request(sequence: int, *said: bytes) -> bytes:
    """Numbers what a worker says: reports of iterations one after the other, and at most one thing else, the last."""
    return b"".join((pb.AttendRequest(sequence=sequence).SerializeToString(), *said))


def encode_said(said: WorkerPhase | Report) -> bytes:
    """Encodes a heartbeat, which says what the worker is doing, or a report, for `encode_request`."""
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
    """Reads a message of a worker: how it opens its stream, or what it says, in order.

    Raises:
        InvalidArgument: these bytes are no message, it is of a kind that this version does not know, or a value in it
            is out of range.
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
    """Encodes what the dispatcher has taken in and refused. Followed by plan messages, it is one message with them."""
    encoded = [
        common_pb2.Refusal(sequence=each.sequence, code=each.code, reason=each.reason, message=each.details)
        for each in refusals
    ]
    return pb.AttendResponse(received=received, refusals=encoded).SerializeToString()


def decode_response(data: bytes) -> Response:
    """Reads a message of the dispatcher. Raises InvalidArgument if it is malformed."""
    plans, rest = decode_iteration_plans(data) or ([], data)
    message = parse(pb.AttendResponse, rest)
    refusals = [Refusal(each.sequence, each.code, each.reason, each.message) for each in message.refusals]
    return Response(message.received, refusals, [*plans, *decode_plan_messages(message)])
