"""The messages of a worker that have no answer yet."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from esd.services.domain.errors import EsdError, StaleEpoch
from esd.services.domain.reports import FailureReport, IterationReport, Report, WorkerPhase
from esd.services.runtime.tasks import settle
from esd.services.wire.attend import encode_request, encode_said

_MOST_HELD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class _Sent:
    body: WorkerPhase | Report  # the last part of the message
    data: bytes
    answer: asyncio.Future[None]


class Unanswered:
    """A worker's unanswered messages by sequence, over any number of streams.

    The number of reports is bounded: there are at most as many as unconfirmed plans, which the dispatcher bounds. At
    most one heartbeat is unanswered.

    Attributes:
        held_seconds: duration of the iterations whose reports are held back for the next message.
    """

    def __init__(self) -> None:
        self.held_seconds = 0.0
        self._held: list[bytes] = []  # parts of the next message
        self._held_bytes = 0
        self._answer: asyncio.Future[None] | None = None  # to the next message
        self._sent: dict[int, _Sent] = {}  # ascending
        self._to_send: deque[bytes] = deque()  # on the present stream
        self._more = asyncio.Event()
        self._last = 0
        self._heartbeat = 0  # sequence of the latest heartbeat
        self._heard = 0.0  # when the oldest message began to wait, or the last answer arrived

    @property
    def held(self) -> int:
        """The number of reports held back for the next message."""
        return len(self._held)

    def hold(self, report: IterationReport) -> asyncio.Future[None]:
        """Holds a report back for the next message, unless that would become too long; returns its answer."""
        answer = self._append(report)
        if self._held_bytes > _MOST_HELD_BYTES:
            self._send(report, answer)
        else:
            self.held_seconds += report.seconds
        return answer

    def add(self, body: WorkerPhase | Report) -> asyncio.Future[None]:
        """Queues a message with the held reports and `body`, and returns its answer."""
        answer = self._append(body)
        self._send(body, answer)
        return answer

    def _append(self, body: WorkerPhase | Report) -> asyncio.Future[None]:
        said = encode_said(body)
        self._held.append(said)
        self._held_bytes += len(said)
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _send(self, last: WorkerPhase | Report, answer: asyncio.Future[None]) -> None:
        """Makes a message of all held parts."""
        if not self._sent:
            self._heard = time.monotonic()
        self._last += 1
        data = encode_request(self._last, *self._held)
        self._held.clear()
        self._held_bytes = 0
        self.held_seconds = 0.0
        self._answer = None
        self._sent[self._last] = _Sent(last, data, answer)
        self._to_send.append(data)
        self._more.set()

    def beat(self, phase: WorkerPhase) -> None:
        """Queues a heartbeat, unless the last one is unanswered."""
        if self._heartbeat not in self._sent:
            self.add(phase)
            self._heartbeat = self._last

    def send_again(self) -> None:
        """Begins a stream, on which all unanswered messages are sent again, in order."""
        self._heard = time.monotonic()
        self._to_send = deque(sent.data for sent in self._sent.values())

    async def next_to_send(self) -> bytes:
        """Waits for the next message to send on the present stream."""
        while not self._to_send:
            self._more.clear()
            await self._more.wait()
        return self._to_send.popleft()

    def waits_since(self, now: float) -> float:
        """Returns the seconds for which the dispatcher has owed an answer; 0 when it owes none."""
        return now - self._heard if self._sent else 0.0

    def confirm(self, received: int) -> None:
        """Records that all messages up to a sequence are answered."""
        self._heard = time.monotonic()
        while self._sent and (first := next(iter(self._sent))) <= received:
            settle(self._sent.pop(first).answer, None)

    def refuse(self, sequence: int, error: EsdError) -> None:
        """Records that a message was refused."""
        sent = self._sent.pop(sequence, None)
        if sent is not None:
            settle(sent.answer, error)

    def answer_all(self, error: EsdError | None) -> None:
        """Answers all messages: with an error, or with success at the end of the job, which has confirmed them.

        A failure report of an epoch that is over is answered with success, because its news is known. Not so if the
        failure ends the job: the epoch may have ended by the report of another worker, which has missed this one.
        """
        for sent in self._sent.values():
            known = isinstance(sent.body, FailureReport) and not sent.body.fatal and isinstance(error, StaleEpoch)
            settle(sent.answer, None if known else error)
        if self._answer is not None:
            settle(self._answer, error)
        self._sent.clear()
        self._to_send.clear()
