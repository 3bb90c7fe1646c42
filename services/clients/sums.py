"""The client of sums: a worker's streams to the parameter servers that add its vectors to the other workers'."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from numpy.typing import NDArray

from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.traffic import Traffic
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.errors import EsdError, Internal, Unavailable
from esd.services.domain.sum_pieces import PieceName, SumMember, SumPiece, pieces_of_shard
from esd.services.runtime import metrics
from esd.services.runtime.retry import repeated
from esd.services.runtime.status import domain_errors, error_of
from esd.services.runtime.tasks import all_of
from esd.services.wire.sums import JOINED, decode_sum, encode_member, encode_piece

_SENT, _RECEIVED = (metrics.DENSE_BYTES.labels(ServerSum.name, operation) for operation in ("sent", "received"))
_SUM = "/esd.v1.ParameterServer/Sum"
_SILENCE = 1.25  # the server reports by itself that a member is late, and gets this multiple of the patience to do so
_FAREWELL_SECONDS = 1.0  # for a server to end a stream that its client has closed
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs only


class SumClient:
    """Adds the vectors of one worker to the vectors of the other members of its epoch, over a stream to every server.

    Args:
        servers: connections to all servers of the job, in shard order.
        member: this worker, and its group.
        traffic: the link that the messages pass.
    """

    def __init__(self, servers: Sequence[ParameterServerConnection], member: SumMember, traffic: Traffic) -> None:
        self._servers = servers
        self._member = member
        self._traffic = traffic
        self._loop = asyncio.get_running_loop()
        self._streams: list[_Stream] = []
        self._running: set[_Vector] = set()
        self._iteration = -1  # of the last vector
        self._number = 0  # of the next vector in it
        self._failure: EsdError | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def join(self, patience: float) -> None:
        """Opens the streams; returns when all members have come.

        Args:
            patience: seconds for which failed attempts are repeated while a server, or a member, is away.

        Raises:
            DeadlineExceeded: not all members came in time.
            StaleEpoch: the epoch is over.
            FailedPrecondition: another worker has the slot.
            Unavailable: a server, or a member, is away for too long.
        """
        await repeated(self._join, patience)
        self._set_watch()

    def start(self, iteration: int, vector: NDArray[Any], *, zeros: bool) -> Future[None]:
        """Begins to replace a vector by its sum over all members; any one thread may call it.

        All members start vectors of the same lengths and types in the same order.

        Args:
            iteration: of the plan, which never falls.
            vector: [v], contiguous, float32, float64, int32 or int64. Its values stay as they are until they are sent.
            zeros: whether all values are 0, so that they need not be sent.

        Returns:
            The result: done when the sum is in `vector`.
        """
        if iteration != self._iteration:
            self._iteration, self._number = iteration, 0
        each = _Vector(iteration, self._number, vector, zeros)
        self._number += 1
        if self._failure is not None:  # the loop may have ended with it
            self._end(each, self._failure)
        else:
            self._loop.call_soon_threadsafe(self._start, each)
        return each.done

    def leave(self) -> None:
        """Fails all sums, present and later ones; any thread may call it."""
        if self._failure is None:
            self._loop.call_soon_threadsafe(self.fail, Unavailable("this worker has left the epoch"))

    def fail(self, error: EsdError) -> None:
        """Fails all sums, present and later ones, unless they have failed before."""
        if self._failure is None:
            self._failure = error
        for each in tuple(self._running):
            self._end(each, self._failure)
        for stream in self._streams:
            stream.cancel()

    async def close(self) -> None:
        """Closes the streams; unfinished sums fail."""
        if self._watch is not None:
            self._watch.cancel()
        for stream in self._streams:
            await stream.close()
        self.fail(Unavailable("this worker has left the epoch"))

    async def _join(self) -> None:
        streams = [_Stream(self, server, place) for place, server in enumerate(self._servers)]
        try:
            await all_of(stream.join(self._member) for stream in streams)
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise
        self._streams = streams
        for stream in streams:
            stream.run(self._traffic, len(streams))

    def _start(self, vector: _Vector) -> None:
        self._running.add(vector)
        if self._failure is not None:
            self._end(vector, self._failure)
            return
        for stream in self._streams:
            stream.put(vector)
        if not vector.missing:
            self._end(vector)

    def arrived(self, vector: _Vector, piece: SumPiece) -> None:
        """Records a piece of a sum."""
        place = slice(piece.name.start, piece.name.start + piece.name.values)
        vector.values[place] = 0 if piece.values is None else piece.values
        vector.missing -= 1
        if not vector.missing:
            self._end(vector)

    def _end(self, vector: _Vector, error: EsdError | None = None) -> None:
        self._running.discard(vector)
        if vector.done.done():
            return
        if error is None:
            vector.done.set_result(None)
        else:
            vector.done.set_exception(type(error)(str(error)))

    def _set_watch(self) -> None:
        self._watch = self._loop.call_later(self._member.patience / 4, self._notice_silence)

    def _notice_silence(self) -> None:
        longest = _SILENCE * self._member.patience
        for stream in self._streams:
            if stream.waits and time.monotonic() - stream.last_sign > longest:
                self.fail(Unavailable(f"{stream.server} has sent no part of a sum for {longest:.0f} s"))
        self._set_watch()


@dataclass(eq=False, slots=True)
class _Vector:
    """A vector on its way, and its result."""

    iteration: int
    number: int
    values: NDArray[Any]
    zeros: bool
    missing: int = 0  # pieces of the sum that have not arrived
    done: Future[None] = field(default_factory=Future)


class _Stream:
    """The stream to one server.

    Attributes:
        server: its name, for errors.
        last_sign: when a message was sent, or has arrived.
    """

    def __init__(self, client: SumClient, server: ParameterServerConnection, place: int) -> None:
        self.server = f"the parameter server of shard {place}"
        self.last_sign = time.monotonic()
        self._client = client
        self._place = place
        stream: Any = server.channel.stream_stream(_SUM, None, None)  # messages are bytes
        self._call: Any = stream()
        self._unsent: deque[tuple[_Vector, PieceName]] = deque()
        self._expected: deque[tuple[_Vector, PieceName]] = deque()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._shards = 1

    @property
    def waits(self) -> bool:
        """Whether a piece is to be sent, or to arrive."""
        return bool(self._unsent or self._expected)

    async def join(self, member: SumMember) -> None:
        """Introduces the worker; returns when all members have come."""
        with domain_errors():
            await self._call.write(encode_member(member))
            message = await self._call.read()
            if message is _EOF:
                raise Unavailable(f"{self.server} has ended the stream of sums")
        if message != JOINED:
            self._receive(message)  # a refusal

    def run(self, traffic: Traffic, shards: int) -> None:
        """Carries vectors from now on, each to one of so many servers in turn."""
        self._shards = shards
        self._tasks = [asyncio.create_task(self._write(traffic)), asyncio.create_task(self._read(traffic))]

    def put(self, vector: _Vector) -> None:
        """Queues the pieces of a vector that belong to this server."""
        names = pieces_of_shard(vector.iteration, vector.number, vector.values, self._place, self._shards)
        before = len(self._unsent)
        if not self.waits:
            self.last_sign = time.monotonic()
        self._unsent.extend((vector, name) for name in names)
        vector.missing += len(self._unsent) - before
        self._work.set()

    def cancel(self) -> None:
        """Ends the stream at once."""
        self._call.cancel()
        for task in self._tasks[:1]:  # a cancelled read would leak; it ends with the call
            task.cancel()

    async def close(self) -> None:
        """Ends the stream: where nothing is under way, so that the server sees an orderly end."""
        if not self.waits and self._tasks:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await self._call.done_writing()
            await asyncio.wait(self._tasks[1:], timeout=_FAREWELL_SECONDS)
        self.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _write(self, traffic: Traffic) -> None:
        try:
            while True:
                while self._unsent:
                    vector, name = self._unsent.popleft()
                    self._expected.append((vector, name))
                    values = None if vector.zeros else vector.values[name.start : name.start + name.values]
                    message = encode_piece(SumPiece(name, values))
                    await _pass(traffic.send, len(message), traffic.chunk_bytes)
                    await self._call.write(message)
                    _SENT.inc(len(message))
                    self.last_sign = time.monotonic()
                self._work.clear()
                await self._work.wait()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream has ended, and the reader finds the reason

    async def _read(self, traffic: Traffic) -> None:
        error: EsdError = Unavailable(f"{self.server} has ended the stream of sums")
        try:
            with domain_errors():
                while (message := await self._call.read()) is not _EOF:
                    await _pass(traffic.receive, len(message), traffic.chunk_bytes)
                    self._receive(message)
        except EsdError as broken:
            error = broken
        self._client.fail(error)

    def _receive(self, message: bytes) -> None:
        """Handles a piece of a sum. Raises the error of a refusal, or Internal if another piece comes next."""
        self.last_sign = time.monotonic()
        _RECEIVED.inc(len(message))
        piece = decode_sum(message)
        if not isinstance(piece, SumPiece):
            raise error_of(piece.code, piece.reason, piece.message)
        if not self._expected or self._expected[0][1] != piece.name:
            raise Internal(f"{self.server} has sent {piece.name}, which does not come next")
        vector, _ = self._expected.popleft()
        self._client.arrived(vector, piece)


async def _pass(link: Any, size: int, chunk: int) -> None:
    """Lets a message pass the link in parts, between which others may."""
    for start in range(0, size, chunk):
        await link(min(chunk, size - start))
