"""The stream of one worker: what it is told goes down, what it reports comes up, in any order.

One task reads. What a worker reports is taken in at once, since no report waits for anything. The handler writes: with
every message it tells what was taken in and refused since the one before. What was taken in waits for a short while for
a plan to travel with, which the report has often brought about.
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
from esd.services.wire.attend import Attendance, Refusal, decode_request, encode_answer
from esd.services.wire.exchange import sequence_of

_ANSWER_SECONDS = 0.01  # for which an answer waits for a message to travel with
_MOST_REFUSALS = 64  # that wait to be told; until they are, nothing more is read

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
        NotFound: there is no such lease, or it has expired; the job takes no workers any more.
        FailedPrecondition: the plans that are wanted cannot be sent; the job failed.
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
        changed: set when there may be something to send.
    """

    def __init__(self, job: Job, attendance: Attendance) -> None:
        self.changed = asyncio.Event()
        self._job = job
        self._lease_id = attendance.lease_id
        self._messages = messages_for(job, attendance)
        self._received = self._told = 0
        self._refusals: list[Refusal] = []
        self._refusals_told = asyncio.Event()
        self._failure: Exception | None = None
        self._due: asyncio.TimerHandle | None = None  # tells what was taken in, if no message has by then
        self._overdue = False

    async def read(self, requests: AsyncIterator[bytes]) -> None:
        """Takes in what the worker sends, until it closes its side or its lease is gone."""
        try:
            async for data in requests:
                self._take(data)
                self._tell_soon()
                while len(self._refusals) >= _MOST_REFUSALS:
                    self._refusals_told.clear()
                    await self._refusals_told.wait()
        except Exception as error:  # noqa: BLE001 - raised where the call can answer with it
            self._failure = error
            self.changed.set()

    async def messages(self) -> AsyncGenerator[bytes]:
        """Yields what the worker is told, as soon as it is there."""
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
                    yield answer
            if failure is not None:
                raise failure
            if message is None:
                await self.changed.wait()

    def _take(self, data: bytes) -> None:
        """Takes one message in, or refuses it.

        Raises:
            NotFound: the lease has expired.
            FailedPrecondition: the job has failed.
        """
        worker = self._job.caller(self._lease_id)
        sequence = sequence_of(data)
        try:
            if sequence <= self._received:
                raise InvalidArgument(f"sequence is {sequence}, it must be above {self._received}")
            said = decode_request(data)
            if isinstance(said, Attendance):
                raise InvalidArgument("attendance is set, and the stream is open already")
            for report in said:
                take_in(self._job, worker, report)
        except EsdError as error:
            self._refuse(sequence, error)
        self._received = max(self._received, sequence)

    def _tell_soon(self) -> None:
        if self._refusals:
            self.changed.set()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, self._tell_now)

    def _tell_now(self) -> None:
        self._overdue = True
        self.changed.set()

    def _refuse(self, sequence: int, error: EsdError) -> None:
        status = status_of(error)
        _log.info("message refused: %s", status.details, extra={"code": status.code.name, "sequence": sequence})
        job_metrics.refused(status.code.name)
        self._refusals.append(Refusal(sequence, status.code.value[0], status.reason, status.details))

    def _answer(self) -> bytes:
        """Returns what was taken in and refused, once; what was told before comes again only as a number."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._overdue = False
        if self._received == self._told and not self._refusals:
            return b""
        answer = encode_answer(self._received, self._refusals)
        self._told = self._received
        self._refusals.clear()
        self._refusals_told.set()
        return answer
