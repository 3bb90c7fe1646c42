"""What a worker has sent, or is to send, and has no answer to."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from esd.services.domain.errors import EsdError, StaleEpoch
from esd.services.domain.reports import FailureReport, IterationReport, Report, WorkerPhase
from esd.services.wire.attend import encode_request, encode_said

_MOST_HELD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class _Sent:
    body: WorkerPhase | Report  # the last thing that it says
    data: bytes
    answer: asyncio.Future[None]


class Unanswered:
    """The messages of a worker by sequence, from their birth to their answer, over any number of streams.

    Reports are as many as plans that are not confirmed, which the dispatcher bounds; of heartbeats there is one.

    Attributes:
        held_seconds: how long the iterations have taken whose reports wait for a message to travel with.
    """

    def __init__(self) -> None:
        self.held_seconds = 0.0
        self._said: list[bytes] = []  # what the next message says: the reports that wait
        self._said_bytes = 0
        self._answer: asyncio.Future[None] | None = None  # of the next message
        self._sent: dict[int, _Sent] = {}  # ascending
        self._to_send: deque[bytes] = deque()  # on the present stream
        self._more = asyncio.Event()
        self._last = 0
        self._heartbeat = 0  # the sequence of the latest
        self._heard = 0.0  # when the oldest began to wait, or the last answer came

    @property
    def held(self) -> int:
        """How many reports wait for a message to travel with."""
        return len(self._said)

    def hold(self, report: IterationReport) -> asyncio.Future[None]:
        """Takes a report that travels with whatever is sent next, if that is not too large then; returns its answer."""
        answer = self._say(report)
        if self._said_bytes > _MOST_HELD_BYTES:
            self._send(report, answer)
        else:
            self.held_seconds += report.seconds
        return answer

    def add(self, body: WorkerPhase | Report) -> asyncio.Future[None]:
        """Takes something to send, with the reports that wait before it, and returns its answer."""
        answer = self._say(body)
        self._send(body, answer)
        return answer

    def _say(self, body: WorkerPhase | Report) -> asyncio.Future[None]:
        said = encode_said(body)
        self._said.append(said)
        self._said_bytes += len(said)
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _send(self, last: WorkerPhase | Report, answer: asyncio.Future[None]) -> None:
        """Makes a message of everything that is said and not sent."""
        if not self._sent:
            self._heard = time.monotonic()
        self._last += 1
        data = encode_request(self._last, *self._said)
        self._said.clear()
        self._said_bytes = 0
        self.held_seconds = 0.0
        self._answer = None
        self._sent[self._last] = _Sent(last, data, answer)
        self._to_send.append(data)
        self._more.set()

    def beat(self, phase: WorkerPhase) -> None:
        """Takes a heartbeat to send, unless the last one is unanswered."""
        if self._heartbeat not in self._sent:
            self.add(phase)
            self._heartbeat = self._last

    def send_again(self) -> None:
        """Begins a stream: everything that is not answered is to be sent on it, in order."""
        self._heard = time.monotonic()
        self._to_send = deque(sent.data for sent in self._sent.values())

    async def next_to_send(self) -> bytes:
        """Waits for the next message that is to be sent on the present stream."""
        while not self._to_send:
            self._more.clear()
            await self._more.wait()
        return self._to_send.popleft()

    def waits_since(self, now: float) -> float:
        """Returns for how many seconds the dispatcher has owed an answer; 0 when it owes none."""
        return now - self._heard if self._sent else 0.0

    def confirm(self, received: int) -> None:
        """Notes that everything up to a sequence is answered."""
        self._heard = time.monotonic()
        while self._sent and (first := next(iter(self._sent))) <= received:
            _set(self._sent.pop(first).answer, None)

    def refuse(self, sequence: int, error: EsdError) -> None:
        """Notes that a message was refused."""
        sent = self._sent.pop(sequence, None)
        if sent is not None:
            _set(sent.answer, error)

    def give_up(self, error: EsdError | None) -> None:
        """Answers everything: with an error, or, at the end of the job, with what is so, that it is known.

        A failure in an epoch that is over has said nothing new.
        """
        for sent in self._sent.values():
            over = isinstance(sent.body, FailureReport) and isinstance(error, StaleEpoch)
            _set(sent.answer, None if over else error)
        if self._answer is not None:
            _set(self._answer, error)
        self._sent.clear()
        self._to_send.clear()


def _set(answer: asyncio.Future[None], error: EsdError | None) -> None:
    if answer.done():  # whoever waited for it has gone
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
        answer.exception()  # nobody need ask for it
