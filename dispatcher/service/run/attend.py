"""The stream of one worker: plans and answers go to the worker, reports come from it, in any order.

One task reads, and processes each report at once, since no report waits for anything. The handler writes: every message
to the worker also acknowledges the reports received and refused since the message before. An acknowledgement waits for
a short while for a plan to travel with, because a report often causes the next plan.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.run.plans import messages_for
from esd.dispatcher.service.run.reports import take_in
from esd.dispatcher.service.state import job_metrics
from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime.status import status_of
from esd.services.wire.attend import Attendance, Refusal, decode_request, encode_answer, in_pieces
from esd.services.wire.exchange import sequence_of

_ANSWER_SECONDS = 0.01  # how long an acknowledgement waits for a message to travel with
_MOST_REFUSALS = 64  # not yet sent; reading pauses at this number, so that a faulty worker cannot fill the memory

_log = logging.getLogger(__name__)


async def attend(job: Job, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Serves a worker's stream until its epoch is over, or its job.

    Args:
        job: the job.
        requests: the worker's messages.

    Yields:
        The dispatcher's messages.

    Raises:
        InvalidArgument: the first message does not open a stream.
        NotFound: the lease is unknown or has expired, or the job takes no workers any more.
        FailedPrecondition: the first plan that the worker asks for cannot be sent, or the job failed.
        StaleEpoch: the epoch is over.
        Unavailable: the dispatcher is stopping.
    """
    first = await anext(requests, None)
    attendance = decode_request(first) if first is not None else None
    if not isinstance(attendance, Attendance):
        raise InvalidArgument("attendance is not set in the first message")
    stream = _Stream(job, attendance)
    reading = asyncio.create_task(stream.read(requests), name="attend")
    try:
        with job.lifecycle.told_by(stream.changed.set):
            async with aclosing(stream.messages()) as messages:
                async for message in messages:
                    yield message
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class _Stream:
    """Both directions of a worker's stream.

    Attributes:
        changed: set when there may be a message to send.
    """

    def __init__(self, job: Job, attendance: Attendance) -> None:
        self.changed = asyncio.Event()
        self._job = job
        self._lease_id = attendance.lease_id
        self._messages = messages_for(job, attendance)
        self._received = self._acknowledged = 0  # sequence numbers of the worker's messages
        self._refusals: list[Refusal] = []
        self._refusals_sent = asyncio.Event()
        self._failure: Exception | None = None
        self._due: asyncio.TimerHandle | None = None  # sends the acknowledgement alone, if no plan has carried it
        self._overdue = False

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Processes the worker's messages until it closes its side or loses its lease."""
        try:
            async for data in requests:
                self._process(data)
                self._answer_soon()
                while len(self._refusals) >= _MOST_REFUSALS:
                    self._refusals_sent.clear()
                    await self._refusals_sent.wait()
        except Exception as error:  # noqa: BLE001 - `messages` raises it, so that the call answers with it
            self._failure = error
            self.changed.set()

    async def messages(self) -> AsyncGenerator[bytes]:
        """Yields the messages to the worker, each as soon as it is ready."""
        while True:
            self.changed.clear()
            failure = self._failure
            message: bytes | None = None
            try:
                message = next(self._messages)
            except StopIteration:
                return
            except EsdError as error:
                failure = error
            if message is not None or failure is not None or self._refusals or self._overdue:
                answer = self._answer() + (message or b"")
                if answer:
                    for piece in in_pieces(answer, self._job.settings.max_message_bytes):
                        yield piece
            if failure is not None:
                raise failure
            if message is None:
                await self.changed.wait()

    def _process(self, data: bytes) -> None:
        """Records one message of the worker, or refuses it.

        Raises:
            NotFound: the lease has expired.
            FailedPrecondition: the job has failed.
        """
        worker = self._job.caller(self._lease_id)
        sequence = sequence_of(data)
        try:
            if sequence <= self._received:
                raise InvalidArgument(f"sequence is {sequence}, it must be above {self._received}")
            reports = decode_request(data)
            if isinstance(reports, Attendance):
                raise InvalidArgument("attendance is set, and the stream is open already")
            for report in reports:
                take_in(self._job, worker, report)
        except EsdError as error:
            self._refuse(sequence, error)
        self._received = max(self._received, sequence)

    def _answer_soon(self) -> None:
        if self._refusals:
            self.changed.set()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._answer_now)

    def _answer_now(self) -> None:
        self._overdue = True
        self.changed.set()

    def _refuse(self, sequence: int, error: EsdError) -> None:
        status = status_of(error)
        _log.info("message refused: %s", status.details, extra={"code": status.code.name, "sequence": sequence})
        job_metrics.refused(status.code.name)
        self._refusals.append(Refusal(sequence, status.code.value[0], status.reason, status.details))

    def _answer(self) -> bytes:
        """Acknowledges the messages received since the last answer, and lists each refusal once.

        Returns:
            The encoded answer; empty if there is nothing new.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._overdue = False
        if self._received == self._acknowledged and not self._refusals:
            return b""
        answer = encode_answer(self._received, self._refusals)
        self._acknowledged = self._received
        self._refusals.clear()
        self._refusals_sent.set()
        return answer
