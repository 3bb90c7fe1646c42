"""The streams of one group of workers that sum, and the memory that all groups of a server share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from esd.ps_server.core.dense_sums import DenseSums
from esd.services.domain.errors import DeadlineExceeded, EsdError, FailedPrecondition, Unavailable
from esd.services.domain.sum_pieces import SumMember, SumPiece
from esd.services.runtime import metrics
from esd.services.runtime.status import status_of
from esd.services.wire.sums import JOINED, encode_end, encode_sum

Context = grpc.aio.ServicerContext[Any, Any]

_LAST_MESSAGE_SECONDS = 1.0  # for a peer to take the error that ends its stream

_SENT = metrics.SUM_BYTES.labels("sent")


class SumMemory:
    """Bounds the bytes of values that wait to be added, and of sums that wait to be sent, by holding off reads.

    Args:
        limit: the bytes beyond which only pieces that are due are read, of which there is one for each group at least.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._waiting: list[asyncio.Future[None]] = []

    def change(self, more: int) -> None:
        """Records that so many more bytes are held, or less, and lets readers look again."""
        self._held += more
        metrics.SUM_HELD_BYTES.set(self._held)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def room_for(self, stream: SumStream, sums: DenseSums) -> None:
        """Returns when the next piece of a stream may be read."""
        while stream.unsent > self._limit or (self._held > self._limit and not sums.due(stream.slot)):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn


@dataclass(slots=True)
class _Message:
    """A message for several streams, and how many have still to send it."""

    data: bytes
    streams: int


class SumStream:
    """The stream of one member.

    Attributes:
        slot: of the member.
        unsent: bytes of sums that wait to be sent.
    """

    def __init__(self, slot: int, memory: SumMemory) -> None:
        self.slot = slot
        self.unsent = 0
        self._memory = memory
        self._queue: deque[_Message] = deque()
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[EsdError] = self._loop.create_future()
        self._last_sent = 0.0  # when a message was sent, or the queue got its first one

    def put(self, message: _Message) -> None:
        """Queues a message."""
        if not self._queue:
            self._last_sent = self._loop.time()
        self._queue.append(message)
        self.unsent += len(message.data)
        self._work.set()

    def fail(self, reason: EsdError) -> None:
        """Ends the stream with an error, unless it has one."""
        if not self._failure.done():
            self._failure.set_result(type(reason)(str(reason)))  # each stream raises an error of its own
            self._work.set()

    def deaf_for(self) -> float:
        """Returns for how many seconds the member has not taken a message that waits for it."""
        return self._loop.time() - self._last_sent if self._queue else 0.0

    async def write(self, context: Context) -> None:
        """Writes messages until it is cancelled, or the peer has gone, which the reader of the stream notices.

        The error that ends the stream is written as a message before it is raised: gRPC loses the status of a call
        whose peer is writing.
        """
        try:
            while not self._failure.done():
                if self._queue:
                    await context.write(self._queue[0].data)
                    _SENT.inc(self._sent())
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

    def drop(self) -> None:
        """Drops the messages that are not sent."""
        while self._queue:
            self._sent()

    def _sent(self) -> int:
        """Removes the first message, and returns its bytes."""
        message = self._queue.popleft()
        self._last_sent = self._loop.time()
        self.unsent -= len(message.data)
        message.streams -= 1
        self._memory.change(0 if message.streams else -len(message.data))
        return len(message.data)


class SumGroup:
    """The members of one epoch. It fails as a whole: when a member leaves that a sum lacks, is refused, or is late.

    Args:
        members: the group that its first member has named.
        sums: of the group.
        memory: of the server.

    Attributes:
        sums: as above.
        streams: of the members that are here, by slot.
    """

    def __init__(self, member: SumMember, sums: DenseSums, memory: SumMemory) -> None:
        self.sums = sums
        self.streams: dict[int, SumStream] = {}
        self._members = member.members
        self._epoch = member.epoch
        self._memory = memory
        self._left: set[int] = set()
        self._joined = False
        self._failure: EsdError | None = None
        self._loop = asyncio.get_running_loop()
        self._last_sign = self._loop.time()
        self._patience = float("inf")
        self._watch: asyncio.TimerHandle | None = None

    def join(self, member: SumMember, patience: float) -> SumStream:
        """Takes a member in, which gets a first message when all have come.

        Args:
            member: the member.
            patience: seconds that this member waits for the others.

        Raises:
            FailedPrecondition: it names other members than the first one, or sums on another stream.
            EsdError: the group has failed.
        """
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        if member.members != self._members:
            raise FailedPrecondition(
                f"worker slot {member.slot} names the members {member.members}, and another one has named "
                f"{self._members} for epoch {self._epoch}"
            )
        if member.slot in self.streams or member.slot in self._left:
            raise FailedPrecondition(f"worker slot {member.slot} sums in epoch {self._epoch} on another stream already")
        stream = self.streams[member.slot] = SumStream(member.slot, self._memory)
        self._patience = min(self._patience, patience)
        self._last_sign = self._loop.time()
        if len(self.streams) == len(self._members):
            self._joined = True
            self._send(JOINED)
        self._set_watch()
        return stream

    def add(self, stream: SumStream, piece: SumPiece) -> None:
        """Takes a piece of a member, and queues the sum for all members when it is complete.

        Raises:
            InvalidArgument: the piece is not the member's next one, or is damaged.
        """
        if self._failure is not None:
            return
        self._last_sign = self._loop.time()
        held = self.sums.held
        total = self.sums.add(stream.slot, piece)
        self._memory.change(self.sums.held - held)
        if total is not None:
            self._send(encode_sum(total))
        self._fail_if_left()

    def leave(self, stream: SumStream) -> None:
        """Records that the stream of a member has ended."""
        del self.streams[stream.slot]
        self._left.add(stream.slot)
        stream.drop()
        if not self._joined:
            self.fail(Unavailable(f"worker slot {stream.slot} has left before all members had come"))
        self._fail_if_left()
        if not self.streams:
            self._memory.change(-self.sums.held)
            if self._watch is not None:
                self._watch.cancel()

    def refuse(self, stream: SumStream, reason: EsdError) -> None:
        """Ends the stream of a member with an error of its own, and the other streams with the member's name."""
        stream.fail(reason)
        self.fail(Unavailable(f"the parameter server has refused worker slot {stream.slot}: {reason}"))

    def fail(self, reason: EsdError) -> None:
        """Ends the streams of all members, unless the group has failed before."""
        if self._failure is None:
            self._failure = reason
            for stream in self.streams.values():
                stream.fail(reason)

    def _send(self, data: bytes) -> None:
        self._memory.change(len(data))
        message = _Message(data, len(self.streams))
        for stream in self.streams.values():
            stream.put(message)

    def _fail_if_left(self) -> None:
        if self._left and (missing := self.sums.missing()) is not None:
            name, slots = missing
            if gone := self._left.intersection(slots):
                self.fail(
                    Unavailable(f"{_slots(gone)} left the sums of epoch {self._epoch}, and {name} are not summed")
                )

    def _set_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(self._last_sign + self._patience, self._notice_silence)

    def _notice_silence(self) -> None:
        silent = self._loop.time() - self._last_sign
        late: Iterable[int] = ()
        task = "come"
        deaf = {slot: each.deaf_for() for slot, each in self.streams.items() if each.deaf_for() >= self._patience}
        if deaf:
            silent, task, late = max(deaf.values()), "taken the sums", deaf
        elif not self._joined:
            late = [slot for slot in self._members if slot not in self.streams]
        elif (missing := self.sums.missing()) is not None:
            task, late = f"sent {missing[0]}", missing[1]
        if not late:
            self._last_sign = self._loop.time()
        elif silent >= self._patience:
            self.fail(
                DeadlineExceeded(
                    f"{_slots(late)} not {task} for {silent:.0f} s, and the others wait no longer "
                    "(ESD_WORKER_PEER_TIMEOUT, ESD_PS_PULL_WAIT_SECONDS)"
                )
            )
            return
        self._set_watch()


def _slots(slots: Iterable[int]) -> str:
    numbers = sorted(slots)
    named = ", ".join(map(str, numbers))
    return f"worker slots {named} have" if len(numbers) > 1 else f"worker slot {named} has"
