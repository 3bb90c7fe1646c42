"""A worker's part in one epoch: it receives plans and sends reports over a stream that outlives its connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self

import grpc

from esd.services.clients.plan_position import PlanPosition
from esd.services.clients.traffic import Traffic
from esd.services.clients.unanswered import Unanswered
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.plans import PlanMessage
from esd.services.domain.reports import IterationReport, Lease, Report, WorkerPhase
from esd.services.runtime.retry import AWAY, Backoff
from esd.services.runtime.status import domain_errors, error_of
from esd.services.wire.attend import Joined, Response, decode_response, encode_attendance

# Longest wait of a report, by the times of the latest iterations: far less than the delay after which the dispatcher
# calls a worker slow (dispatcher/service/state/stragglers.py).
_LONGEST_HOLD_SECONDS = 0.25

OpenStream = Callable[[], Any]  # begins a call of Attend that takes and gives bytes


def idle() -> WorkerPhase:
    """Default phase: IDLE, for a worker that does not report its own."""
    return WorkerPhase.IDLE


class Attendance:
    """A worker's part in one epoch. Iteration yields the dispatcher's messages, each once.

        async with dispatcher.attend(lease) as attendance:
            async for message in attendance:
                ...
                await attendance.report(report)

    Inside the block the stream is read, with or without iteration, and heartbeats keep the lease alive. A stream that
    breaks, or on which the dispatcher stops answering, is opened again and resumes: unanswered messages are sent again,
    and no message of the dispatcher is yielded twice.

    Args:
        open_stream: begins a call of Attend.
        lease: of the worker.
        from_iteration: the first wanted plan; the epoch's first if that is later.
        phase: returns the worker's phase, for each heartbeat.
        timeout: seconds within which the dispatcher must answer; after that the stream counts as broken.
        patience: seconds for which a stream is opened again while the dispatcher is away.
        traffic: the link that the messages pass; None: one without a limit.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        lease: Lease,
        from_iteration: int,
        phase: Callable[[], WorkerPhase],
        *,
        timeout: float,
        patience: float,
        traffic: Traffic | None = None,
    ) -> None:
        self._open_stream = open_stream
        self._lease = lease
        self._phase = phase
        self._timeout = timeout
        self._patience = patience
        self._traffic = traffic or Traffic()
        self._arriving = False  # whether a message passes the link
        self._position = PlanPosition(from_iteration)
        self._unanswered = Unanswered()
        # The dispatcher bounds it: it sends a worker few plans beyond those that the worker has confirmed.
        self._messages: asyncio.Queue[PlanMessage | Exception] = asyncio.Queue()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False
        self._error: EsdError | None = None  # the reason, if it did not end in order
        self._call: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._attending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._attending = asyncio.create_task(self._attend(), name="attend")
        self._keep_alive()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the stream. Unanswered reports fail with Unavailable."""
        if self._attending is not None:
            self._attending.cancel()
            await asyncio.gather(self._attending, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PlanMessage:
        """Returns the next message; the last one is the end of the sample stream.

        Raises:
            StaleEpoch: the epoch is over.
            NotFound: the lease has expired.
            Unavailable: the dispatcher was away for longer than the client's patience.
            FailedPrecondition: the first wanted plan is already confirmed, or lies beyond the next plan to be made; or
                the job failed, and the message names the cause.
        """
        message = await self._messages.get()
        if isinstance(message, Exception):
            self._messages.put_nowait(message)  # for the next call
            raise message
        return message

    def report(self, report: Report) -> asyncio.Future[None]:
        """Sends a report: of an iteration, of a flush, or of a failure of the worker. It may be repeated.

        Returns:
            The dispatcher's answer, which need not be awaited. It raises the errors of `__anext__`, and

            StaleEpoch: the report's epoch, the epoch of its plan, is over; for a failure that passes this is no error.
            FailedPrecondition: the plan is not the worker's next plan.
            InvalidArgument: the report has another number of samples than the plan.
        """
        answer = self._unanswered.add(report)
        if self._over:
            self._unanswered.answer_all(self._error)
        return answer

    def confirm(self, report: IterationReport) -> asyncio.Future[None]:
        """Sends the report of an iteration as `report` does, or holds it back until the next report.

        Where iterations are short, this saves every other message, and the plans that answer it. A report is held back
        only while more plans than reports wait here, so that the dispatcher learns of one half of its window while the
        worker trains the other half. The next message of any kind carries the held reports: do not wait for the answer
        of a report before the next message is sent.
        """
        unanswered = self._unanswered
        soon = unanswered.held_seconds + report.seconds <= _LONGEST_HOLD_SECONDS
        if not self._over and self._messages.qsize() > unanswered.held and soon:
            return unanswered.hold(report)
        return self.report(report)

    async def broken(self) -> None:
        """Waits until the stream ends out of order or a report is refused, even while messages wait to be read.

        Raises:
            EsdError: an error of `__anext__`, or the error with which the report was refused.
        """
        await asyncio.shield(self._broken)

    # --- the stream ----------------------------------------------------------------------------------------------

    async def _attend(self) -> None:
        """Keeps a stream open until one ends in order, or an error ends the attendance."""
        backoff = Backoff(self._patience)
        try:
            while not self._position.ended:
                try:
                    await self._stream(backoff)
                except AWAY as error:
                    await backoff.pause(error)
        except EsdError as error:
            self._end(error)
            self._break(error)
        except asyncio.CancelledError:
            self._end(Unavailable("the worker has closed its stream"))
            raise
        else:
            self._end(None)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _stream(self, backoff: Backoff) -> None:
        """Opens a stream and reads it to its end, while another task writes."""
        self._call = call = self._open_stream()
        writing = asyncio.create_task(self._write(call), name="attend_write")
        try:
            with domain_errors():
                joined = Joined()
                async for data in call:
                    backoff.reset()
                    await self._arrive(len(data))
                    if (message := joined.add(data)) is not None:
                        self._receive(decode_response(message))
                    if self._position.must_reopen():
                        return
            if not self._position.ended:
                raise Unavailable("the dispatcher closed the stream before its end")
        finally:
            self._call = None
            writing.cancel()
            call.cancel()

    async def _arrive(self, size: int) -> None:
        """Returns when a message has passed the link. Meanwhile the dispatcher does not count as silent."""
        self._traffic.received(plans=size)
        self._arriving = True
        try:
            await self._traffic.receive_in_parts(size)
        finally:
            self._arriving = False

    async def _write(self, call: Any) -> None:
        """Sends the opening message, then all unanswered messages, then new messages."""
        position = self._position
        try:
            await call.write(encode_attendance(self._lease, position.next_iteration, position.epoch))
            self._unanswered.send_again()
            while True:
                message = await self._unanswered.next_to_send()
                await self._traffic.send_in_parts(len(message))
                self._traffic.sent(plans=len(message))
                await call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reader of the stream gets the reason

    def _receive(self, response: Response) -> None:
        for refusal in response.refusals:
            error = error_of(refusal.code, refusal.reason, refusal.details)
            self._unanswered.refuse(refusal.sequence, error)
            self._break(error)
        self._unanswered.confirm(response.received)
        for message in response.messages:
            if self._position.is_new(message):
                self._messages.put_nowait(message)

    def _break(self, error: EsdError) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)
            self._broken.exception()  # marks it as retrieved

    def _end(self, error: EsdError | None) -> None:
        self._over, self._error = True, error
        self._messages.put_nowait(error or StopAsyncIteration())
        self._unanswered.answer_all(error)

    def _keep_alive(self) -> None:
        """Sends a heartbeat at intervals, and cancels a stream on which the dispatcher has stopped answering."""
        silent = not self._arriving and self._unanswered.waits_since(time.monotonic()) > self._timeout
        if self._call is not None and silent:
            self._call.cancel()  # its reader opens another one
        self._unanswered.beat(self._phase())
        pause = min(self._lease.heartbeat_seconds / 2, self._timeout)
        self._timer = asyncio.get_running_loop().call_later(pause, self._keep_alive)
