"""One exchange with a parameter server, message by message, for a client that may break the rules."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2
from esd.services.domain.tables import TableSpec
from esd.services.runtime.status import error_of
from esd.services.wire.exchange import Credit
from tests.support.frames import SPEC

METHOD = "/esd.v1.ParameterServer/Exchange"


class RawExchange:
    """A stream: `write` sends any bytes, `read` returns the next message, `answer` all of a frame.

    Attributes:
        credit: the credit that the server has granted.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, ps_pb2.ExchangeResponse], credit: Credit) -> None:
        self.credit = credit
        self._call = call
        self._kept: list[ps_pb2.ExchangeResponse] = []

    async def write(self, *frames: bytes | ps_pb2.ExchangeRequest) -> None:
        for frame in frames:
            await self._call.write(frame if isinstance(frame, bytes) else frame.SerializeToString())

    async def read(self) -> ps_pb2.ExchangeResponse:
        message: Any = await self._call.read()
        assert isinstance(message, ps_pb2.ExchangeResponse), "the server has ended the stream"
        return message

    async def answer(self, sequence: int) -> list[ps_pb2.ExchangeResponse]:
        """All answers to one frame, the last one included; those to other frames are kept for later."""
        mine = [message for message in self._kept if message.sequence == sequence]
        self._kept = [message for message in self._kept if message.sequence != sequence]
        while not (mine and mine[-1].done):
            message = await self.read()
            (mine if message.sequence == sequence else self._kept).append(message)
        return mine

    async def checked(self, sequence: int) -> list[ps_pb2.ExchangeResponse]:
        """All answers to one frame; raises the error of a refusal."""
        answers = await self.answer(sequence)
        refusal = answers[-1].refusal
        if answers[-1].HasField("refusal"):
            raise error_of(refusal.code, refusal.reason, refusal.message)
        return answers

    async def rows(self, sequence: int, count: int, stateless: int = 0) -> NDArray[np.float32]:
        """The rows of a frame's pull, float32 [count, W], NaN where none came; raises the error of a refusal."""
        rows = np.full((count, SPEC.row_width), np.nan, np.float32)
        cursor = 0
        for message in await self.checked(sequence):
            for at, row in answered_rows(message, SPEC, cursor, count, stateless).items():
                floats = np.frombuffer(row, np.float32)
                rows[at, : len(floats)] = floats
                cursor = at + 1
        return rows

    async def close(self) -> None:
        """Closes this side."""
        await self._call.done_writing()

    async def end(self) -> None:
        """Closes this side, and returns when the server has ended the stream well."""
        await self.close()
        assert await self._call.read() is grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs only
        assert await self._call.code() is grpc.StatusCode.OK


@asynccontextmanager
async def exchange(channel: grpc.aio.Channel) -> AsyncIterator[RawExchange]:
    """Opens a stream, and cancels it at the end of the block if it is still there."""
    opened: Any = channel.stream_stream(METHOD, None, ps_pb2.ExchangeResponse.FromString)
    call = opened()
    try:
        first: Any = await call.read()
        yield RawExchange(call, Credit(first.credit.frames, first.credit.bytes))
    finally:
        call.cancel()


def answered_rows(
    message: ps_pb2.ExchangeResponse, spec: TableSpec, cursor: int, pulls: int, stateless: int = 0
) -> dict[int, bytes]:
    """Returns the rows of an answer, by the positions of the pulls that they are for; b"" for an initial row.

    Args:
        message: the answer.
        spec: the table.
        cursor: the position behind the last one of the frame's answer before; 0 at first.
        pulls: how many rows the frame asks for.
        stateless: how many of them, the last ones, without their optimizer state.
    """
    rows: dict[int, bytes] = {}
    listed = np.frombuffer(message.positions, np.uint32).tolist()
    sent, initial = message.rows, message.initial  # every look at a message's bytes is a copy
    start, last = 0, -1
    while start < len(sent) or len(rows) < len(initial):
        at = listed[len(rows)] if listed else cursor + len(rows)
        assert last < at < pulls
        size = spec.row_bytes if at < pulls - stateless else 4 * spec.dimension
        rows[at], last = sent[start : start + (0 if initial and initial[len(rows)] else size)], at
        start += len(rows[at])
    assert start == len(sent)
    assert len(listed) in (0, len(rows))
    assert not initial or (len(initial) == len(rows) and any(initial))
    return rows
