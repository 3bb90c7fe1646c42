"""A worker that trains correctly and lies all the time under its own lease.

Before each message of an honest worker it sends others on the same stream: the worker's next message with a few fields
changed, repeated, or cut off, and lies made for the moment. The dispatcher answers by number, so each lie has its
answer, and the honest worker gets none of these answers.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from google.protobuf.message import DecodeError

from esd.protos import dispatcher_pb2 as pb
from hardening.fuzz.calls import CallResult, Method, fault
from hardening.fuzz.twists import Twist, drawn, twists

_ATTEND = Method("/esd.v1.Dispatcher/Attend", client_streaming=True, server_streaming=True)
_FAR = 1000  # iterations, or epochs


@dataclass(slots=True)
class Lies:
    """The lies of a liar, and the answers to them.

    Attributes:
        twists: changes of messages of the stream, each sent once.
        per_message: number of lies before each honest message.
        failures: number of times that the worker reports a failure, which ends an epoch.
        told: number of lies sent.
        refusals: number of refused lies by code.
        believed: names of lies that were not refused and should have been, with the message.
        answers: every refusal.
    """

    twists: Iterator[Twist]
    per_message: int
    failures: int = 0
    told: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    believed: list[str] = field(default_factory=list)
    answers: list[CallResult] = field(default_factory=list)

    @classmethod
    def drawn(cls, count: int, number: int, *, per_message: int, failures: int) -> Self:
        """Draws so many twists by a seed."""
        kind: Any = pb.AttendRequest.DESCRIPTOR  # the two implementations of protobuf have a type each
        return cls(iter(drawn(twists(kind, {}), count, number)), per_message, failures)

    def faults(self) -> list[str]:
        """Returns the faults of the answers to the lies."""
        return [*(f"believed: {each}" for each in self.believed), *filter(None, map(_fault, self.answers))]

    def stream(self) -> Liar:
        """Returns the changes to the messages of another stream of the worker."""
        return Liar(self)


def _fault(answer: CallResult) -> str | None:
    return fault(_ATTEND, answer)


class Liar:
    """One stream of the worker (`meddler.Meddling`)."""

    def __init__(self, lies: Lies) -> None:
        self._lies = lies
        self._last = 0  # number of a message, lie or not
        self._honest: deque[tuple[int, int]] = deque()  # numbers here, and of the worker
        self._answered = 0  # of the worker's
        self._unanswered: dict[int, str] = {}  # lies that must be refused, by number

    def up(self, message: bytes) -> Iterable[bytes]:
        """Returns lies, and the message behind them."""
        said = pb.AttendRequest.FromString(message)
        if said.HasField("attendance"):
            yield message
            return
        for lie, name in self._lies_before(said):
            self._lies.told += 1
            self._last += 1
            if name:
                self._unanswered[self._last] = f"{name}: {lie!r}"
            yield _numbered(lie, self._last)
        self._last += 1
        self._honest.append((self._last, said.sequence))
        said.ClearField("sequence")
        yield _numbered(said.SerializeToString(), self._last)

    def down(self, message: bytes) -> Iterable[bytes]:
        """Returns the message without the answers to lies."""
        answer = pb.AttendResponse.FromString(message)
        own = dict(self._honest)
        refusals = []
        for refusal in answer.refusals:
            if refusal.sequence in own:
                refusal.sequence = own[refusal.sequence]
                refusals.append(refusal)
            else:
                self._unanswered.pop(refusal.sequence, None)
                code = _CODES[refusal.code]
                self._lies.refusals[code.name] += 1
                self._lies.answers.append(CallResult(code, refusal.message, reasoned=bool(refusal.reason)))
        believed = [number for number in self._unanswered if number <= answer.received]
        self._lies.believed += [self._unanswered.pop(number) for number in believed]
        while self._honest and self._honest[0][0] <= answer.received:
            self._answered = self._honest.popleft()[1]
        if answer.received:
            answer.received = self._answered
        del answer.refusals[:]
        answer.refusals.extend(refusals)
        yield answer.SerializeToString()

    def _lies_before(self, honest: pb.AttendRequest) -> Iterator[tuple[bytes, str]]:
        """Makes lies. A lie that must be refused has its name."""
        lies, unnumbered = self._lies, pb.AttendRequest()
        unnumbered.CopyFrom(honest)
        unnumbered.ClearField("sequence")
        good = unnumbered.SerializeToString()
        for name, lie in _LIES.items():
            of_moment = pb.AttendRequest.FromString(good)
            if lie(of_moment):
                yield of_moment.SerializeToString(), name
        # After the others, because some lies confirm the iteration that the worker is about to confirm.
        for twist in itertools.islice(lies.twists, lies.per_message):
            twisted = twist(good)
            if not _is_believed(twisted):
                yield twisted, ""
        if lies.failures and honest.iterations and honest.iterations[-1].iteration % 10 == 7:
            lies.failures -= 1
            cause = pb.FailureReport(epoch=honest.iterations[-1].epoch, cause="fuzzed")
            yield pb.AttendRequest(failure=cause).SerializeToString(), ""


def _numbered(message: bytes, sequence: int) -> bytes:
    """Gives a message that has none the number that the dispatcher answers it by, and if it is no message at all."""
    return pb.AttendRequest(sequence=sequence).SerializeToString() + message


def _is_believed(message: bytes) -> bool:
    """Returns whether a message reports a failure of the worker or of a checkpoint, or a complete flush.

    The dispatcher believes such a report of a lease holder, because it may be true, so no refusal follows.
    """
    try:
        said = pb.AttendRequest.FromString(message)
    except DecodeError:
        return False
    return bool(said.HasField("failure") or said.HasField("flush"))


_CODES = {code.value[0]: code for code in grpc.StatusCode}

Lie = Callable[[pb.AttendRequest], bool]  # changes a message; False: it cannot


def _of_iteration(change: Callable[[pb.IterationReport], object]) -> Lie:
    """Makes a lie about the first of the iterations that a message reports."""

    def lie(message: pb.AttendRequest) -> bool:
        if not message.iterations:
            return False
        change(message.iterations[0])
        return True

    return lie


def _of_flush(change: Callable[[pb.FlushReport], object]) -> Lie:
    def lie(message: pb.AttendRequest) -> bool:
        if not message.HasField("flush"):
            return False
        change(message.flush)
        return True

    return lie


def _as(other: pb.AttendRequest) -> Lie:
    """Makes a lie that says something else altogether."""

    def lie(message: pb.AttendRequest) -> bool:
        message.CopyFrom(other)
        return True

    return lie


def _as_flush(message: pb.AttendRequest) -> bool:
    """Makes a message about an iteration one about a flush far behind it."""
    if not message.iterations:
        return False
    report = message.iterations[0]
    flush = pb.FlushReport(epoch=report.epoch, iteration=report.iteration + _FAR)
    message.CopyFrom(pb.AttendRequest(flush=flush))
    return True


def _setting(**values: object) -> Callable[[pb.IterationReport | pb.FlushReport], None]:
    def change(report: pb.IterationReport | pb.FlushReport) -> None:
        for name, value in values.items():
            setattr(report, name, value)

    return change


def _moving(**counts: int) -> Callable[[pb.IterationReport | pb.FlushReport], None]:
    def change(report: pb.IterationReport | pb.FlushReport) -> None:
        for name, value in counts.items():
            setattr(report.transfers, name, value)

    return change


def _by(name: str, step: int) -> Callable[[pb.IterationReport | pb.FlushReport], None]:
    return lambda report: setattr(report, name, getattr(report, name) + step)


# Lies that the dispatcher must refuse at any time, by name.
_LIES: dict[str, Lie] = {
    "an iteration that is not trained yet": _of_iteration(_by("iteration", 1)),
    "an iteration that is not planned": _of_iteration(_by("iteration", _FAR)),
    "an iteration beyond all": _of_iteration(_setting(iteration=2**64 - 1)),
    "an iteration of an epoch that is over": _of_iteration(_by("epoch", -1)),  # the next one may begin meanwhile
    "an iteration of an epoch beyond all": _of_iteration(_setting(epoch=2**64 - 1)),
    "a loss that is no number": _of_iteration(_setting(loss_sum=math.nan)),
    "an infinite loss": _of_iteration(_setting(loss_sum=-math.inf)),
    "a loss by label of one label": _of_iteration(lambda report: report.label_loss_sums.append(0.5)),
    "samples that do not exist": _of_iteration(
        lambda report: _setting(score_bins=report.score_bins + b"\0\0", labels=report.labels + b"\0")(report)
    ),
    "no samples": _of_iteration(_setting(score_bins=b"", labels=b"", groups=b"")),
    "half a score bin": _of_iteration(lambda report: _setting(score_bins=report.score_bins + b"\0")(report)),
    "scores without labels": _of_iteration(_setting(labels=b"")),
    "labels that are none": _of_iteration(lambda report: _setting(labels=b"\3" * len(report.labels))(report)),
    "samples of more labels than the job has": _of_iteration(_setting(labels_per_sample=2)),
    "samples of labels without number": _of_iteration(_setting(labels_per_sample=2**32 - 1)),
    "groups of other samples": _of_iteration(_setting(groups=bytes(8 * 1000))),
    "rows beyond all": _of_iteration(_moving(miss_pull=2**63)),
    "bytes beyond all": _of_iteration(_moving(bytes_pushed=2**64 - 1)),
    "a time that is no number": _of_iteration(_setting(seconds=math.nan)),
    "a time before it began": _of_iteration(_setting(seconds=-1.0)),
    "a phase without end": _of_iteration(lambda report: setattr(report.phases, "compute", math.inf)),
    "a link that is no number": _of_iteration(_setting(measured_bandwidth_bytes_per_second=math.nan)),
    "a link without speed": _of_iteration(_setting(measured_bandwidth_bytes_per_second=1e-300)),
    "a flush that was not planned": _as_flush,
    "a flush of an epoch that is over": _of_flush(_by("epoch", -1)),
    "a flush of more rows than there are": _of_flush(_moving(flush_push=2**63)),
    "nothing": _as(pb.AttendRequest()),
    "a stream in the stream": _as(pb.AttendRequest(attendance=pb.Attendance(lease_id="another"))),
    "a phase that no worker is in": _as(pb.AttendRequest(heartbeat=77)),  # type: ignore[arg-type]
}
