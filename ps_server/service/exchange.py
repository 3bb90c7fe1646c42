"""The server side of the exchange: streams of frames that store rows and pull rows (protos/ps.proto, Exchange).

Each stream has one coroutine, which reads frames and begins their pulls, one task, which stores their pushes in order,
and one task, which writes answers. A frame has no task of its own: while its pulls wait for rows, it is an entry of
WaitingPulls, which puts it back into the writer's queue when rows have arrived. So a stream encodes one answer at a
time, when the peer accepts it, and a peer that does not read keeps no rows in this server's memory.

A pull does not wait until the pushes of its frame, or of earlier ones, are stored: it names the version that it needs,
and if a push makes that version, the pull waits for the row as for any other. Pulls of rows that the same frame pushes
follow the push. A store in memory has stored a frame before its pulls begin, since that takes no time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from esd.native.rows import ExactPulls, HeldFrame
from esd.protos import ps_pb2
from esd.ps_server.core.table import Pushed, Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.frame_content import FrameContent, decode_frame, store_pushes
from esd.ps_server.service.frame_pulls import FramePulls
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import StoreThreads
from esd.ps_server.service.turns import in_turn
from esd.ps_server.service.waiting import BYTES_PER_PULLED_ID, WaitingPulls
from esd.services.domain.errors import InvalidArgument, Overloaded
from esd.services.runtime import metrics
from esd.services.runtime.byte_budget import ByteBudget, Share
from esd.services.runtime.status import status_of
from esd.services.runtime.tracing import Span, continue_trace
from esd.services.wire.exchange import (
    MAX_FRAME_BYTES,
    Credit,
    Stored,
    encode_credit,
    encode_refusal,
    encode_stored,
    parse_frame,
    rows_per_answer,
    sequence_of,
)

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

Content = HeldFrame | ps_pb2.ExchangeRequest
"""A frame as decoded by the native reader, or by protobuf if the native reader does not know its form."""

# Looked up once, because finding a metric by its labels takes longer than changing it.
_READ, _WRITTEN = (metrics.STORE_SECONDS.labels(operation) for operation in ("read", "write"))
_DONE_WELL = metrics.EXCHANGE_FRAMES.labels(grpc.StatusCode.OK.name)
_RECEIVED, _SENT = (metrics.EXCHANGE_BYTES.labels(operation) for operation in ("received", "sent"))


@dataclass(frozen=True, slots=True)
class ExchangeService:
    """The objects that all streams of a server share."""

    tables: Tables
    waiting: Mapping[str, WaitingPulls]
    threads: StoreThreads
    budget: ByteBudget
    settings: ParameterServerSettings

    async def serve(self, context: Context) -> None:
        """Serves one stream until the peer has closed its side and every frame is answered."""
        stream = _Stream(self, context)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stream.write_answers(), name="exchange-answers")
                tasks.create_task(stream.store_pushes(), name="exchange-pushes")
                await stream.read_frames()
        except* grpc.aio.InternalError:
            pass  # gRPC raises this if the peer disappears in the middle of a message; there is nobody left to answer
        finally:
            stream.close()


class _OpenFrame:
    """A frame whose last answer is not sent yet.

    Attributes:
        sequence: its number.
        size: bytes of its message.
        share: the memory that it holds.
        arrived: when it arrived.
        pulls: its pulls that are not answered; None if it has none, or they have failed.
        storing: whether its pushes are to be stored, and their acknowledgement is not in the writer's queue yet.
        unacknowledged: the same until the acknowledgement is written.
        replies: number of its replies in the writer's queue.
        pulls_follow: whether its pulls begin when its pushes are stored, since both have the same rows.
        failure: the error of its pulls, to be answered when its pushes are stored.
        queued: whether it is in the writer's queue, or its first rows have still to be put there.
        span: of it, if its sender traces the iteration.
    """

    def __init__(self, data: bytes, share: Share) -> None:
        self.sequence = sequence_of(data)
        self.size = len(data)
        self.share = share
        self.arrived = time.perf_counter()
        self.pulls: FramePulls | None = None
        self.storing = self.unacknowledged = self.pulls_follow = False
        self.replies = 0
        self.failure: Exception | None = None
        self.queued = True
        self.span: Span | None = None

    def begin_span(self, content: Content) -> None:
        """Begins its span as a child of its sender's, if it names one."""
        if content.trace_parent:
            self.span = continue_trace(
                content.trace_parent, "exchange", began=self.arrived, table=content.table, bytes=self.size
            )

    def end_pulls(self) -> None:
        """Ends the pulls. May be repeated."""
        if self.pulls is not None:
            self.pulls.close()
            self.pulls = None


@dataclass(frozen=True, slots=True)
class _Push:
    """Pushes of a frame that wait to be stored."""

    frame: _OpenFrame
    content: FrameContent
    table: Table
    longest_wait: float


@dataclass(frozen=True, slots=True)
class _Reply:
    """One answer to a frame: a message, or none yet; `last` marks the frame's final answer.

    An acknowledgement has the counts in `stored`. It is encoded when it is written, since only then is it known whether
    all rows have been answered before it.
    """

    frame: _OpenFrame
    message: bytes | None
    last: bool
    code: grpc.StatusCode = grpc.StatusCode.OK
    stored: Stored | None = None


class _Stream:
    def __init__(self, exchange: ExchangeService, context: Context) -> None:
        settings = exchange.settings
        self._exchange = exchange
        self._context = context
        self._credit = Credit(settings.exchange_frames, settings.exchange_bytes)
        self._last_sequence = 0
        self._unanswered: set[_OpenFrame] = set()
        self._unanswered_bytes = 0
        self._queue: deque[_Reply | _OpenFrame] = deque()
        self._work = asyncio.Event()  # the queue has an item, or the stream is closing
        self._room = asyncio.Event()  # the queue is short enough for the next frame to be read
        self._room.set()
        self._closing = False
        self._pushes: deque[_Push] = deque()
        self._storing = False  # whether pushes are in this queue or are being stored
        self._pushed = asyncio.Event()  # there are pushes, or the stream is closing

    async def read_frames(self) -> None:
        """Receives frames until the peer closes its side."""
        while (data := await self._context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            _RECEIVED.inc(len(data))
            await self._take(data)
            if len(self._queue) > self._credit.frames:  # refusals that the peer does not read
                self._room.clear()
                await self._room.wait()
        self._closing = True
        self._work.set()
        self._pushed.set()

    async def store_pushes(self) -> None:
        """Stores the pushes of frames, one frame after the other, until the peer has closed its side."""
        while self._pushes or not self._closing:
            while self._pushes:
                await self._store(self._pushes.popleft())
            self._storing = False
            if not self._closing:
                self._pushed.clear()
                await self._pushed.wait()

    async def write_answers(self) -> None:
        """Grants the credit, then writes answers until every frame is answered and the peer has closed its side."""
        try:
            await self._context.write(encode_credit(self._credit))
            while self._queue or self._unanswered or not self._closing:
                while self._queue:
                    item = self._queue.popleft()
                    self._room.set()
                    if isinstance(item, _Reply):
                        item.frame.replies -= 1
                        answer: _Reply | None = item
                    else:
                        answer = await self._go_on(item)
                    if answer is not None:
                        await self._write(answer)
                if self._unanswered or not self._closing:
                    self._work.clear()
                    await self._work.wait()
        except grpc.aio.InternalError:
            pass  # the peer has gone; the call itself may learn it later
        except Exception:
            if not self._context.done():  # otherwise the peer has gone
                raise

    def close(self) -> None:
        """Drops all unanswered frames."""
        for frame in tuple(self._unanswered):
            self._forget(frame)

    async def _take(self, data: bytes) -> None:
        """Applies a frame at once, or begins its pulls and queues its pushes; puts the first answer into the queue."""
        frame = _OpenFrame(data, self._exchange.budget.share())
        self._unanswered.add(frame)
        self._unanswered_bytes += frame.size
        try:
            content = _read(data)
            frame.sequence = content.sequence
            frame.begin_span(content)
            self._admit(frame)
            table = self._exchange.tables.get(content.table)
            answer = self._apply_at_once(frame, content, table) or await self._apply(frame, data, table)
        except Exception as error:  # noqa: BLE001 - a frame's boundary: any error becomes its refusal
            answer = self._refusal(frame, error)
        self._put(answer)
        if not frame.pulls_follow:
            self._rest(frame)

    def _put(self, answer: _Reply | None) -> None:
        """Puts an answer into the writer's queue, if there is one."""
        if answer is not None and (answer.message is not None or answer.stored is not None):
            answer.frame.replies += 1
            self._queue.append(answer)
            self._work.set()

    def _admit(self, frame: _OpenFrame) -> None:
        """Checks a frame's size, sequence and credit.

        Raises:
            InvalidArgument: the frame is too long, or its sequence is not above the last one of the stream.
            Overloaded: the unanswered frames exceed the credit.
        """
        if frame.size > MAX_FRAME_BYTES:
            raise InvalidArgument(f"the frame has {frame.size} bytes, and at most {MAX_FRAME_BYTES} are allowed")
        if frame.sequence <= self._last_sequence:
            raise InvalidArgument(
                f"the frame's sequence is {frame.sequence}, it must be above {self._last_sequence}, the last of this "
                "stream"
            )
        self._last_sequence = frame.sequence
        settings = self._exchange.settings
        if len(self._unanswered) > self._credit.frames:
            raise Overloaded(
                f"{len(self._unanswered)} frames of this stream are unanswered, and the limit is "
                f"{settings.variable('exchange_frames')}={self._credit.frames}"
            )
        if self._unanswered_bytes > self._credit.bytes:
            raise Overloaded(
                f"the unanswered frames of this stream have {self._unanswered_bytes} bytes, and the limit is "
                f"{settings.variable('exchange_bytes')}={self._credit.bytes}"
            )

    def _apply_at_once(self, frame: _OpenFrame, content: Content, table: Table) -> _Reply | None:
        """Applies a frame without leaving the event loop; None if it must be applied in a thread."""
        if not isinstance(content, HeldFrame) or self._exchange.threads.refuses:
            return None
        if content.pushes and self._storing:
            return None  # it must not overtake the pushes of earlier frames
        waiting = self._exchange.waiting[table.spec.name]
        started = time.perf_counter()
        applied = table.apply_at_once(content, waiting.rows, rows_per_answer(table.row_bytes))
        if applied is None:
            return None
        waiting.wake(applied.woken)
        if not applied.good:
            return None
        (_WRITTEN if applied.stored else _READ).observe(time.perf_counter() - started)
        if applied.pulls is not None:
            stored = None if applied.stored is None else Stored(*applied.stored)
            try:
                self._begin_pulls(frame, content, table, applied.pulls, table.row_bytes).lag()
            except Exception as error:  # noqa: BLE001 - a frame's boundary
                return self._refusal(frame, error, stored)
        return _Reply(frame, applied.answer, last=applied.pulls is None)

    async def _apply(self, frame: _OpenFrame, data: bytes, table: Table) -> _Reply | None:
        """Queues the pushes of a frame, and reads the first rows that it pulls, in threads of the store."""
        request = parse_frame(data)
        content = decode_frame(request, table.spec)
        if content.pulls is not None:
            wanted = content.pulls
            table.check_pull(wanted.ids, wanted.versions, content.epoch)
            longest = table.row_bytes if wanted.stateless < len(wanted.ids) else 4 * table.spec.dimension
            pulls = ExactPulls(wanted.ids, wanted.versions, wanted.stateless)
            self._begin_pulls(frame, request, table, pulls, longest)
        if content.pushes:
            frame.storing = frame.unacknowledged = self._storing = True
            self._pushes.append(_Push(frame, content, table, self._longest_wait(request)))
            self._pushed.set()
        frame.pulls_follow = content.pulls_pushed_rows
        return None if frame.pulls_follow else await self._read(frame, lambda: frame.storing)

    async def _read(self, frame: _OpenFrame, storing: Callable[[], bool]) -> _Reply | None:
        """Reads the next rows of a frame's pulls; returns an answer, or None if there is nothing to answer.

        Args:
            frame: the frame.
            storing: returns whether the acknowledgement of its pushes will be written after this answer.
        """
        if frame.pulls is None:
            return None
        try:
            message = await frame.pulls.go_on(self._exchange.threads, storing)
        except Exception as error:  # noqa: BLE001 - a frame's boundary
            return self._pulls_failed(frame, error)
        done = frame.pulls is None or frame.pulls.done
        return _Reply(frame, message, last=done and not storing())

    async def _store(self, push: _Push) -> None:
        """Stores the pushes of a frame as soon as it is their turn, and puts their acknowledgement into the queue."""
        frame, waiting, loop = push.frame, self._exchange.waiting[push.table.spec.name], asyncio.get_running_loop()

        def announce(pushed: Pushed) -> None:
            # From the thread and not after the await: if the peer hangs up, other streams still wait for these rows.
            loop.call_soon_threadsafe(waiting.announce, pushed.ids, pushed.versions)

        write = partial(self._exchange.threads.write, store_pushes, push.content, push.table, announce)
        try:
            stored = await in_turn(write, waiting, push.content.epoch, loop.time() + push.longest_wait)
        except Exception as error:  # noqa: BLE001 - a frame's boundary
            self._put(self._refusal(frame, error))
            return
        frame.storing = False
        if frame.failure is not None:
            self._put(self._refusal(frame, frame.failure, stored))
            return
        self._put(_Reply(frame, None, last=False, stored=stored))
        if frame.pulls_follow:  # before the next push, which may make a later version of these rows
            self._put(await self._read(frame, lambda: False))
            self._rest(frame)

    def _pulls_failed(self, frame: _OpenFrame, error: Exception) -> _Reply | None:
        """Ends a frame whose pulls fail with a refusal: now, or when its pushes are stored."""
        frame.end_pulls()
        if not frame.storing:
            return self._refusal(frame, error)
        frame.failure = error
        return None

    def _begin_pulls(
        self, frame: _OpenFrame, content: Content, table: Table, pulls: ExactPulls, longest_row: int
    ) -> FramePulls:
        """Reserves memory for the pulls of a frame, and begins them. Raises Overloaded if too little is left."""
        frame.share.take(BYTES_PER_PULLED_ID * (pulls.due + pulls.lagging))
        deadline = asyncio.get_running_loop().time() + self._longest_wait(content)
        waiting = self._exchange.waiting[table.spec.name]
        frame.pulls = FramePulls(
            table, waiting, pulls, frame.sequence, content.epoch, deadline, longest_row,
            wake=lambda: self._wake(frame),
        )  # fmt: skip
        return frame.pulls

    def _longest_wait(self, content: Content) -> float:
        """Returns for how many seconds a frame may wait for rows."""
        return min(content.wait_ms / 1000, self._exchange.settings.pull_wait_seconds)

    async def _go_on(self, frame: _OpenFrame) -> _Reply | None:
        """Reads the rows of a frame's pulls that are due; returns an answer, or None if there is nothing to read."""
        frame.queued = False
        if frame.pulls is None or not frame.pulls.ready:
            return None
        return await self._read(frame, lambda: frame.unacknowledged)

    def _refusal(self, frame: _OpenFrame, error: Exception, stored: Stored | None = None) -> _Reply:
        """Returns the last answer of a frame, with an error."""
        status = status_of(error)
        fields = {"code": status.code.name, **({} if frame.span is None else frame.span.ids)}
        _log.info("frame %d refused: %s", frame.sequence, status.details, extra=fields)
        message = encode_refusal(frame.sequence, stored, status.code.value[0], status.reason, status.details)
        return _Reply(frame, message, last=True, code=status.code)

    async def _write(self, answer: _Reply) -> None:
        frame = answer.frame
        if frame not in self._unanswered:
            return  # the frame has been refused since
        if answer.stored is not None:
            frame.unacknowledged = False
            last = not frame.replies and (frame.pulls is None or frame.pulls.done)
            answer = _Reply(frame, encode_stored(frame.sequence, answer.stored, last=last), last)
        if answer.last:
            self._forget(frame)  # before the write: a peer that has read the answer may send another frame at once
        if answer.message is not None:
            await self._context.write(answer.message)
            _SENT.inc(len(answer.message))
        if answer.last:
            ok = answer.code is grpc.StatusCode.OK
            (_DONE_WELL if ok else metrics.EXCHANGE_FRAMES.labels(answer.code.name)).inc()
            metrics.EXCHANGE_SECONDS.observe(time.perf_counter() - frame.arrived)
            if frame.span is not None:
                frame.span.end(code=answer.code.name)
        else:
            self._wake(frame)

    def _wake(self, frame: _OpenFrame) -> None:
        """Puts a frame into the queue if its pulls have rows to read."""
        if frame.pulls is not None and frame.pulls.ready and not frame.queued:
            frame.queued = True
            self._queue.append(frame)
            self._work.set()

    def _rest(self, frame: _OpenFrame) -> None:
        """Leaves a frame to the writer, which goes on with it when its pulls have rows to read."""
        frame.queued = False
        self._wake(frame)  # rows may have arrived meanwhile

    def _forget(self, frame: _OpenFrame) -> None:
        if frame in self._unanswered:
            self._unanswered.remove(frame)
            self._unanswered_bytes -= frame.size
            frame.share.close()
            frame.end_pulls()


def _read(data: bytes) -> Content:
    """Decodes a frame. Raises InvalidArgument if the bytes are not one."""
    try:
        return HeldFrame(data)
    except ValueError:
        return parse_frame(data)
