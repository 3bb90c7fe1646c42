"""The streams of sums of a server, and the memory that all of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from esd.ps_server.core.dense_sums import DenseSums
from esd.ps_server.core.sum_log import SumLog
from esd.services.domain.errors import EsdError
from esd.services.runtime import metrics
from esd.services.runtime.status import status_of
from esd.services.wire.sums import MAX_MESSAGE_BYTES, encode_end, encode_welcome

Context = grpc.aio.ServicerContext[Any, Any]

_LAST_MESSAGE_SECONDS = 1.0  # for a peer to take the error that ends its stream

_SENT = metrics.SUM_BYTES.labels("sent")


class Holder(Protocol):
    """A group that holds gradients and sums."""

    @property
    def held(self) -> int:
        """The bytes that it holds."""

    def drop_sent_sum(self) -> int:
        """Drops the first sum if it is kept only for streams that break; returns its bytes, or 0."""


class SumMemory:
    """Bounds the bytes of values that wait to be added, and of sums, by dropping sent sums and by holding off reads.

    Args:
        limit: the bytes beyond which sent sums are dropped, and then only pieces that are due are read, of which there
            is one for each group at least.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._holders: dict[Holder, int] = {}  # with the bytes of each in `_held`
        self._waiting: list[asyncio.Future[None]] = []

    def update(self, holder: Holder) -> None:
        """Records the bytes that a group holds now, and lets readers look again."""
        self._record(holder, holder.held)
        if self._held > self._limit:
            for each in self._holders:
                while self._held > self._limit and each.drop_sent_sum():
                    self._record(each, each.held)
        self._changed()

    def remove(self, holder: Holder) -> None:
        """Records that a group is over."""
        self._record(holder, 0)
        del self._holders[holder]
        self._changed()

    async def room_for(self, stream: SumStream, sums: DenseSums) -> None:
        """Returns when the next piece of a stream may be read."""
        while stream.unsent > self._limit or (self._held > self._limit and not sums.due(stream.slot)):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _record(self, holder: Holder, held: int) -> None:
        self._held += held - self._holders.get(holder, 0)
        self._holders[holder] = held

    def _changed(self) -> None:
        metrics.SUM_HELD_BYTES.set(self._held)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


class SumStream:
    """One stream of a member, which gets the sums of its group at its own pace.

    Args:
        slot: of the member.
        log: the sums.
        number: of the first sum that the member lacks.
        sent: called after every sum that is sent.

    Attributes:
        slot: as above.
        next: number of the next sum to send, or of the first that is being sent.
        reached: the number of sums that the member can have.
        unsent: bytes of sums that wait to be sent.
    """

    def __init__(self, slot: int, log: SumLog, number: int, sent: Callable[[], None]) -> None:
        self.slot = slot
        self.next = number
        self.reached = number
        self.unsent = log.bytes_from(slot, number)
        self._log = log
        self._sent = sent
        self._welcome = b""  # unless it is sent
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[EsdError] = self._loop.create_future()
        self._last_sent = 0.0  # when a message was sent, or began to wait

    def welcome(self, pieces: int) -> None:
        """Reports that all members have come, and how many pieces of the member are here, before any sum."""
        self._touch()
        self._welcome = encode_welcome(pieces)

    def extend(self, size: int) -> None:
        """Notices that the log has another sum, of so many bytes."""
        self._touch()
        self.unsent += size

    def fail(self, reason: EsdError) -> None:
        """Ends the stream with an error, unless it has one."""
        if not self._failure.done():
            self._failure.set_result(type(reason)(str(reason)))  # each stream raises an error of its own
            self._work.set()

    def deaf_for(self) -> float:
        """Returns for how many seconds the member has not taken a message that waits for it."""
        return self._loop.time() - self._last_sent if self._waits else 0.0

    async def write(self, context: Context) -> None:
        """Writes messages until it is cancelled, or the peer has gone, which the reader of the stream notices.

        The error that ends the stream is written as a message before it is raised: gRPC loses the status of a call
        whose peer is writing.
        """
        try:
            while not self._failure.done():
                if self._waits:
                    await self._write_next(context)
                    continue
                self._work.clear()
                await self._work.wait()
            status = status_of(self._failure.result())
            await context.write(encode_end(status.code.value[0], status.reason, status.details))
        except Exception:
            if not context.done():
                raise
            return
        raise self._failure.result()

    async def failed(self) -> None:
        """Raises the error that ends the stream, when there is one and its peer has had time to take it."""
        reason = await self._failure
        await asyncio.sleep(_LAST_MESSAGE_SECONDS)
        raise reason

    @property
    def _waits(self) -> bool:
        return bool(self._welcome or self.unsent)

    def _touch(self) -> None:
        if not self._waits:
            self._last_sent = self._loop.time()
        self._work.set()

    async def _write_next(self, context: Context) -> None:
        """Writes the welcome, or the sums that wait, as far as they fit a message."""
        message = self._welcome
        if not message:
            sums = self._log.fitting(self.slot, self.next, MAX_MESSAGE_BYTES)
            message = b"".join(sums)
            self.reached = self.next + len(sums)
        await context.write(message)
        _SENT.inc(len(message))
        self._last_sent = self._loop.time()
        if self._welcome:
            self._welcome = b""
            return
        self.next = self.reached
        self.unsent -= len(message)
        self._sent()
