"""One stream of an exchange with a server, from its opening until it breaks or is closed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from esd.services.clients.frame import Frame
from esd.services.clients.outbox import Outbox
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import EsdError, Internal, Unavailable
from esd.services.runtime.status import domain_errors, error_of
from esd.services.wire.exchange import Credit
from esd.services.wire.frames import Answer

# A pull may wait for another worker's push, which must not wait in turn for pulls that wait for this worker's push. So
# pulls are sent while less than this share of the credit is used, and pushes while there is any credit.
_SHARE_OF_PULLS = 0.5
# The server reports by itself that a row was not there in time. It gets this multiple of the timeout to do so.
_SILENCE = 1.25


class FrameStream:
    """Writes frames within the credit of the server, and gives each answer to its frame.

    Answers pass `traffic` in the order of their arrival. Acknowledgements count at once: they have a few bytes, and the
    push is durable already.

    Args:
        call: of the stream; its messages are bytes.
        outbox: the frames to send.
        traffic: the link that the messages pass.
        timeout: seconds that the server may be silent, in addition to the time in which `traffic` moves the bytes.
        refused: called with a frame that the server has refused, and the error.
        server: name of the server, for errors.

    Attributes:
        useful: whether at least one frame had its last answer on this stream.
    """

    def __init__(
        self,
        call: Any,
        outbox: Outbox,
        traffic: Traffic,
        timeout: float,
        refused: Callable[[Frame, EsdError], None],
        server: str,
    ) -> None:
        self.useful = False
        self._call = call
        self._outbox = outbox
        self._traffic = traffic
        self._timeout = timeout
        self._refused = refused
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._credit: Credit | None = None
        self._unanswered: dict[int, Frame] = {}  # by number, ascending
        self._bytes_unanswered = 0
        self._pushing: set[Frame] = set()  # not acknowledged
        self._last_number = 0
        self._arriving: deque[tuple[float, Answer]] = deque()  # with the time at which each has passed `traffic`
        self._arrival: asyncio.TimerHandle | None = None
        self._last_sign = time.monotonic()  # when a message was sent, or has arrived
        self._failure: EsdError | None = None  # the reason, if the stream is cancelled here
        self._watch: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether every sent frame is answered."""
        return not self._unanswered

    def end(self) -> None:
        """Ends the stream, with or without unanswered frames. If `run` were cancelled, gRPC would leak its read."""
        self._call.cancel()

    async def run(self) -> EsdError:
        """Carries frames until the stream ends, and returns the reason. Unanswered frames return to the outbox."""
        self._watch = self._loop.call_later(self._timeout, self._notice_silence)
        writing = self._loop.create_task(self._write())
        error: EsdError = Unavailable(f"{self._server} has ended the exchange")
        try:
            with domain_errors():
                while (message := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]  # missing in the stubs only
                    self._receive(message)
        except EsdError as broken:
            error = self._failure or broken
        finally:
            self._call.cancel()  # a no-op after the end
            writing.cancel()
            for timer in (self._watch, self._arrival):
                if timer is not None:
                    timer.cancel()
            for frame in list(self._pushing):
                self._push_ends(frame)
            self._outbox.put_again(list(self._unanswered.values()))
        await asyncio.wait([writing])
        return error

    # --- writing

    async def _write(self) -> None:
        try:
            while not self._outbox.closed:
                frame, pulls = self._next()
                if frame is not None:
                    await self._send(frame, pulls=pulls)
                else:
                    self._outbox.changed.clear()
                    await self._outbox.changed.wait()
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._call.cancel()  # the stream is broken, and `run` finds the reason

    def _next(self) -> tuple[Frame | None, bool]:
        """Returns the frame to send now, or None, and whether its pulls are sent with it."""
        frame = self._outbox.first()
        if frame is None or self._fits(frame, _SHARE_OF_PULLS):
            return frame, True
        push = self._outbox.first_push()
        return (push if push is not None and self._fits(push, 1.0) else None), False

    def _fits(self, frame: Frame, share: float) -> bool:
        """Whether a share of the credit is enough. A frame above all of it is sent alone, for the server to refuse."""
        if self._credit is None:
            return False
        return not self._unanswered or (
            len(self._unanswered) < share * self._credit.frames
            and self._bytes_unanswered + frame.size <= share * self._credit.bytes
        )

    async def _send(self, frame: Frame, *, pulls: bool) -> None:
        self._outbox.take(frame)
        number = frame.sequence if frame.sequence > self._last_number else self._outbox.number()
        message = frame.begin(number, pulls=pulls)
        self._last_number = number
        self._unanswered[number] = frame
        self._bytes_unanswered += len(message)
        if not frame.stored.done():
            self._pushing.add(frame)
            self._traffic.push_begins()
        await self._traffic.send(len(message))
        self._traffic.sent(rows=len(message) - frame.sent_gradient_bytes, gradients=frame.sent_gradient_bytes)
        await self._call.write(message)
        self._last_sign = time.monotonic()

    # --- reading

    def _receive(self, message: bytes) -> None:
        """Handles a message of the server.

        Raises:
            Internal: the bytes are no answer, or no frame waits for it.
        """
        self._last_sign = time.monotonic()
        answer = Answer(message)
        parts, credit = answer.parts, answer.credit
        self._traffic.received(**{"rows" if parts.brings_rows else "other": len(message)})
        if credit is not None:
            self._credit = credit
            self._outbox.changed.set()
            return
        frame = self._unanswered.get(parts.sequence)
        if frame is None:
            raise self._unasked(answer)
        wait = self._traffic.down(len(message))
        if parts.stored:
            frame.acknowledge(parts.newly_stored, parts.already_known)
            self._push_ends(frame)
        if wait <= 0 and not self._arriving:
            self._deliver(frame, answer)
        elif parts.brings_rows or parts.refused or parts.done:
            self._arriving.append((self._last_sign + wait, answer))
            if self._arrival is None:
                self._arrival = self._loop.call_later(wait, self._arrive)

    def _arrive(self) -> None:
        """Delivers the answers that have passed the traffic by now."""
        self._arrival = None
        while self._arriving:
            wait = self._arriving[0][0] - time.monotonic()
            if wait > 0:
                self._arrival = self._loop.call_later(wait, self._arrive)
                return
            _, answer = self._arriving.popleft()
            frame = self._unanswered.get(answer.parts.sequence)
            if frame is None:  # an earlier answer was its last
                self._failure = self._unasked(answer)
                self._call.cancel()
                return
            self._deliver(frame, answer)

    def _unasked(self, answer: Answer) -> Internal:
        return Internal(f"{self._server} answers frame {answer.parts.sequence}, which waits for no answer")

    def _deliver(self, frame: Frame, answer: Answer) -> None:
        try:
            frame.place_rows(answer)
        except Internal as error:
            frame.fail(error)
        refusal = answer.refusal
        if refusal is None and not answer.parts.done:
            return
        self._push_ends(frame)
        del self._unanswered[answer.parts.sequence]
        self._bytes_unanswered -= frame.sent_bytes
        if refusal is not None:
            self._refused(frame, error_of(refusal.code, refusal.reason, refusal.message))
        else:
            self.useful = True
            if frame.continues:
                self._outbox.put_again([frame])
            else:
                frame.end()
        if self._outbox.first() is not None:
            self._outbox.changed.set()

    def _push_ends(self, frame: Frame) -> None:
        if frame in self._pushing:
            self._pushing.remove(frame)
            self._traffic.push_ends(frame.push_bytes)

    def _notice_silence(self) -> None:
        """Ends the stream if the server owes an answer for too long; otherwise looks again later."""
        size = self._bytes_unanswered + sum(frame.bytes_missing for frame in self._unanswered.values())
        allowed = self._traffic.deadline(size, _SILENCE * self._timeout)
        waits = self._credit is None or self._unanswered
        left = self._last_sign + allowed - time.monotonic() if waits else allowed
        if left > 0:
            self._watch = self._loop.call_later(left, self._notice_silence)
            return
        what = f"{len(self._unanswered)} frames" if self._unanswered else "the opening of the exchange"
        self._failure = Unavailable(f"{self._server} has not answered {what} within {allowed:.3g} s")
        self._call.cancel()
