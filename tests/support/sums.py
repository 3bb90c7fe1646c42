"""One stream of sums with a parameter server, message by message, for a worker that may break the rules."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from esd.protos import common_pb2, ps_pb2
from esd.services.domain.sum_pieces import SumMember, SumPiece, pieces_of_shard
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.status import domain_errors, error_of
from esd.services.wire.sums import decode_sum, encode_member, encode_pieces

METHOD = "/esd.v1.ParameterServer/Sum"

_INSTANCES = itertools.count()


def member(slot: int, workers: int = 2, *, table: str = "t", epoch: int = 0, patience: float = 60) -> SumMember:
    """A member of an instance of its own."""
    return SumMember(table, epoch, slot, WorkerSet.all_of(workers), patience, next(_INSTANCES))


class RawSums:
    """A stream: `send` sends any bytes, or vectors; `read` returns the next sum."""

    def __init__(self, call: Any, received: int = 0) -> None:
        self.received = received  # sums, on this stream and on earlier ones of the worker
        self._call = call
        self._pieces: list[SumPiece] = []  # that have come with the one that was read last

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            try:
                with domain_errors():
                    await self._call.write(message)
            except asyncio.InvalidStateError:  # the server has ended the stream: its status says why
                await self.ended()
                return

    async def send_vector(self, vector: NDArray[np.float32], iteration: int = 0, number: int = 0) -> None:
        for name in pieces_of_shard(iteration, number, vector, 0, 1):
            piece = SumPiece(name, vector[name.start : name.start + name.values])
            await self.send(encode_pieces([piece], self.received))

    async def joined(self) -> int:
        """Reads the welcome; returns the number of the worker's pieces that the server has."""
        pieces = decode_sum(await self._read())
        assert isinstance(pieces, int), pieces
        return pieces

    async def read(self) -> SumPiece:
        if not self._pieces:
            found = decode_sum(await self._read())
            assert isinstance(found, list), found
            self._pieces = found
        self.received += 1
        return self._pieces.pop(0)

    async def read_vector(self, length: int) -> NDArray[np.float32]:
        """The sum of a vector, whose pieces come in order."""
        parts: list[NDArray[np.float32]] = []
        while (found := sum(map(len, parts))) < length:
            piece = await self.read()
            assert (piece.name.start, piece.name.length) == (found, length)
            parts.append(np.zeros(piece.name.values, np.float32) if piece.values is None else piece.values)
        return np.concatenate(parts)

    async def ended(self) -> None:
        """Reads to the end; raises the error with which the server ends the stream."""
        with domain_errors():
            while (data := await self._call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                last = decode_sum(data)
                if isinstance(last, common_pb2.Refusal):
                    raise error_of(last.code, last.reason, last.message)
            assert await self._call.code() is grpc.StatusCode.OK, await self._call.details()

    async def leave(self) -> None:
        await self.send(encode_pieces(None, self.received))

    def cancel(self) -> None:
        """Breaks the stream."""
        self._call.cancel()

    async def close(self) -> None:
        """Closes the worker's side without a farewell, as if the connection had broken."""
        await self._call.done_writing()

    async def _read(self) -> bytes:
        with domain_errors():
            message: Any = await self._call.read()
        assert isinstance(message, bytes), "the server has ended the stream"
        return message


@asynccontextmanager
async def sums(channel: grpc.aio.Channel, introduced: SumMember | None = None) -> AsyncIterator[RawSums]:
    """Opens a stream, introduces a worker if there is one, and cancels the stream at the end of the block."""
    opened: Any = channel.stream_stream(METHOD, None, None)
    call = opened()
    try:
        stream = RawSums(call, 0 if introduced is None else introduced.sums)
        if introduced is not None:
            await stream.send(encode_member(introduced))
        yield stream
    finally:
        call.cancel()


def piece(**fields: Any) -> bytes:
    """Any message of a piece."""
    return ps_pb2.SumRequest(pieces=[ps_pb2.SumPiece(**fields)]).SerializeToString()
