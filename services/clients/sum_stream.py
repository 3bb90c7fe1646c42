"""The stream of sums to one parameter server, which is opened again when it breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import grpc
from numpy.typing import NDArray

from esd.protos import common_pb2
from esd.services.clients.traffic import Traffic
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.errors import EsdError, Internal, Unavailable
from esd.services.domain.sum_pieces import LONGEST_PIECE, PieceName, SumMember, SumPiece, pieces_of_shard
from esd.services.runtime import metrics
from esd.services.runtime.retry import Backoff
from esd.services.runtime.status import domain_errors, error_of
from esd.services.wire.sums import MAX_PIECES, decode_sum, encode_member, encode_pieces

_log = logging.getLogger(__name__)

_SENT, _RECEIVED = (metrics.DENSE_BYTES.labels(ServerSum.name, operation) for operation in ("sent", "received"))
_SUM = "/esd.v1.ParameterServer/Sum"
_FAREWELL_SECONDS = 1.0  # for a server to end a stream that its client leaves
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs only


@dataclass(eq=False, slots=True)
class Vector:
    """A vector on its way, and its result.

    Attributes:
        iteration: of the plan.
        number: of the vector in the iteration.
        values: [v], of which each piece is replaced by its sum.
        zeros: whether all values are 0, so that they need not be sent.
        wanted: whether the sum is wanted; else the values stay as they are.
        missing: number of pieces whose sums have not arrived.
        done: the result.
    """

    iteration: int
    number: int
    values: NDArray[Any]
    zeros: bool
    wanted: bool = True
    missing: int = 0
    done: Future[None] = field(default_factory=Future)


class Receiver(Protocol):
    """The recipient of sums."""

    def arrived(self, vector: Vector, piece: SumPiece) -> None:
        """Takes a piece of a sum."""

    def fail(self, error: EsdError) -> None:
        """Learns that there will be no more sums."""


class SumStream:
    """Sends the pieces of vectors that belong to one server, and receives their sums.

    A piece that has no sum keeps its values, so it can be sent again: when a stream breaks, the next one begins with
    the numbers of sums here and of pieces at the server, and both sides send the rest.

    Args:
        channel: to the server.
        place: the number of the server, and the number of servers.
        member: this worker, and its group.
        traffic: the link that the messages pass.
        receiver: gets the sums.

    Attributes:
        server: its name, for errors.
        last_sign: when a message was sent, or has arrived.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        place: tuple[int, int],
        member: SumMember,
        traffic: Traffic,
        receiver: Receiver,
    ) -> None:
        self.server = f"the parameter server of shard {place[0]}"
        self.last_sign = time.monotonic()
        self._open_call: Any = channel.stream_stream(_SUM, None, None)  # messages are bytes
        self._call: Any = None
        self._place = place
        self._member = member
        self._traffic = traffic
        self._receiver = receiver
        self._unsent: deque[tuple[Vector, PieceName]] = deque()
        self._expected: deque[tuple[Vector, PieceName]] = deque()  # sent, whose sums have not arrived
        self._received = 0  # number of sums
        self._work = asyncio.Event()
        self._leaves = False
        self._refused = False  # whether the server has ended the stream with an error of its own
        self._running: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether a piece waits to be sent, or for its sum."""
        return bool(self._unsent or self._expected)

    async def join(self) -> None:
        """Introduces the worker; returns when all members have come."""
        await self._open(self._member)

    def run(self, patience: float) -> None:
        """Carries vectors from now on.

        Args:
            patience: seconds for which a stream that breaks is opened again.
        """
        self._running = asyncio.create_task(self._run(patience))

    def put(self, vector: Vector) -> None:
        """Queues the pieces of a vector that belong to this server."""
        names = pieces_of_shard(vector.iteration, vector.number, vector.values, *self._place)
        before = len(self._unsent)
        if not self.waits:
            self.last_sign = time.monotonic()
        self._unsent.extend((vector, name) for name in names)
        vector.missing += len(self._unsent) - before
        self._work.set()

    def cancel(self) -> None:
        """Ends the stream at once."""
        if self._call is not None:
            self._call.cancel()

    def leave(self) -> None:
        """Sends a farewell as the next message, so that the other members do not wait for this one."""
        self._leaves = True
        self._work.set()

    async def close(self) -> None:
        """Leaves, and ends the stream."""
        self.leave()
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_FAREWELL_SECONDS)
            self.cancel()
            await asyncio.wait([self._running], timeout=_FAREWELL_SECONDS)
            self._running.cancel()  # it waits for its next attempt, or has ended: a cancelled read would leak
            await asyncio.wait([self._running])
        self.cancel()

    async def _run(self, patience: float) -> None:
        backoff = Backoff(patience)
        try:
            while True:
                error: EsdError | None = await self._carry()
                while error is not None:
                    if self._leaves:
                        return
                    if self._refused or not isinstance(error, Unavailable):
                        raise error
                    await backoff.pause(error)
                    error = await self._resume()
                backoff.reset()
        except EsdError as error:
            self._receiver.fail(error)

    async def _carry(self) -> EsdError:
        """Carries vectors until the stream ends, and returns the reason."""
        writing = asyncio.create_task(self._write(self._call))
        try:
            with domain_errors():
                while (message := await self._call.read()) is not _EOF:
                    await self._traffic.receive_in_parts(len(message))
                    self._traffic.received(dense=len(message))
                    self._receive(message)
        except EsdError as broken:
            return broken
        finally:
            self._call.cancel()  # a no-op after the end
            writing.cancel()
            await asyncio.wait([writing])
        return Unavailable(f"{self.server} has ended the stream of sums")

    async def _resume(self) -> EsdError | None:
        """Opens the stream again; returns the reason if it fails."""
        try:
            pieces = await self._open(replace(self._member, resumes=True, sums=self._received))
            taken = pieces - self._received
            if not 0 <= taken <= len(self._expected):
                raise Internal(f"{self.server} has {pieces} pieces of this worker, which has sent other ones")
        except EsdError as error:
            return error
        while len(self._expected) > taken:
            self._unsent.appendleft(self._expected.pop())
        _log.warning("the stream of sums to %s was broken, and continues", self.server)
        return None

    async def _open(self, member: SumMember) -> int:
        """Opens a stream; returns the number of the worker's pieces at the server when all members have come."""
        call = self._call = self._open_call()
        with domain_errors():
            with suppress(asyncio.InvalidStateError):  # the stream has ended, and the reader finds the reason
                await call.write(encode_member(member))
            message = await call.read()
        if message is _EOF:
            raise Unavailable(f"{self.server} has ended the stream of sums")
        answer = self._decoded(message)
        if not isinstance(answer, int):
            raise Internal(f"{self.server} has sent pieces of sums before its welcome")
        return answer

    async def _write(self, call: Any) -> None:
        """Writes pieces while the stream lasts; the reader finds the reason of its end."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while not self._leaves:
                if self._unsent:
                    await self._send_next(call)
                    continue
                self._work.clear()
                await self._work.wait()
            await call.write(encode_pieces(None, self._received))
            await call.done_writing()

    async def _send_next(self, call: Any) -> None:
        """Sends the first piece, and those after it that the link carries with it in a few milliseconds."""
        pieces: list[SumPiece] = []
        room = min(self._traffic.joined_bytes, LONGEST_PIECE)
        for vector, name in islice(self._unsent, MAX_PIECES):
            values = None if vector.zeros else vector.values[name.start : name.start + name.values]
            room -= 0 if values is None else values.nbytes
            if pieces and room < 0:
                break
            pieces.append(SumPiece(name, values, vector.wanted))
        message = encode_pieces(pieces, self._received)
        await self._traffic.send_in_parts(len(message))
        self._traffic.sent(dense=len(message))
        self._expected.extend(self._unsent.popleft() for _ in pieces)
        await call.write(message)
        _SENT.inc(len(message))
        self.last_sign = time.monotonic()

    def _receive(self, message: bytes) -> None:
        """Handles pieces of sums. Raises the error of a refusal, or Internal if another piece comes next."""
        self.last_sign = time.monotonic()
        _RECEIVED.inc(len(message))
        pieces = self._decoded(message)
        if isinstance(pieces, int):
            raise Internal(f"{self.server} has sent a second welcome")
        for piece in pieces:
            if not self._expected or self._expected[0][1] != piece.name:
                raise Internal(f"{self.server} has sent {piece}, which does not come next")
            vector, _ = self._expected.popleft()
            self._received += 1
            self._receiver.arrived(vector, piece)

    def _decoded(self, message: bytes) -> list[SumPiece] | int:
        """Returns pieces of sums, or the number in a welcome. Raises the error of a refusal."""
        answer = decode_sum(message)
        if isinstance(answer, common_pb2.Refusal):
            self._refused = True
            raise error_of(answer.code, answer.reason, answer.message)
        return answer
