"""A connection over lanes, in both directions."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from esd.lanes.blocks import END, MOST_GROUP_BYTES, Assembly, Head, MalformedBlock, blocks_of
from esd.services.runtime import lane_metrics as metrics

_LANE_BYTES = 1 << 18  # that one lane may be behind the others: its next blocks are left to the parity
_MOST_HELD = 4 << 20  # bytes of a direction that wait for a block, before lanes that are ahead are no longer read
_FAREWELL_SECONDS = 30.0  # for one direction to end after the other
_UNHEARD_MS = 30_000  # for which what was sent may stay without acknowledgement, as long as gRPC's keepalive
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER of a close that resets the connection

BROKEN = (OSError, EOFError, asyncio.LimitOverrunError, MalformedBlock)  # errors of a connection that has ended early


@dataclass(frozen=True, slots=True)
class Stream:
    """One end of a TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    LIMIT: ClassVar[int] = MOST_GROUP_BYTES  # bytes that wait to be read

    def become_lane(self) -> None:
        """Makes a lane of it."""
        end = self.writer.get_extra_info("socket")
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD_MS)
        self.writer.transport.set_write_buffer_limits(high=_LANE_BYTES)

    async def close(self) -> None:
        """Closes it when all that was written has gone, or half a minute later."""
        self.writer.close()
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.writer.wait_closed()
        except OSError:  # TimeoutError is one
            await self.abort()

    async def abort(self) -> None:
        """Closes it at once. Its peer learns that bytes may be missing, which a mere end would not tell."""
        with suppress(OSError):
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


class Carrier:
    """Carries the bytes of a connection over lanes until it ends.

    Args:
        local: the connection.
        lanes: at least two, which are set up.
    """

    def __init__(self, local: Stream, lanes: Sequence[Stream]) -> None:
        self._local = local
        self._lanes = lanes
        self._assembly = Assembly()
        self._advanced = asyncio.Event()

    async def carry(self) -> None:
        """Returns when both directions have ended.

        Raises:
            OSError, EOFError, MalformedBlock: a connection broke, its other end is none of ours, or one direction stays
                open long after the other has ended. All are closed.
        """
        broken = True
        metrics.CONNECTIONS.inc()
        try:
            await _end_together([self._send(), self._receive()])
            broken = False
        finally:
            metrics.CONNECTIONS.dec()
            streams = (self._local, *self._lanes)
            await asyncio.gather(*(each.abort() if broken else each.close() for each in streams))

    async def _send(self) -> None:
        """Sends the bytes of the connection, as one group those that have come meanwhile."""
        group = 0
        while data := await self._local.reader.read(MOST_GROUP_BYTES):
            for head, content in blocks_of(group, data, len(self._lanes)):
                self._put(self._lanes[(group + head.index) % len(self._lanes)].writer, head, content)
            group += 1
            await self._room()
        for lane in self._lanes:
            lane.writer.write(END.encode())
            lane.writer.write_eof()

    def _put(self, lane: asyncio.StreamWriter, head: Head, content: bytes) -> None:
        """Sends a block, except over a lane that is far behind, which only one may be.

        Raises:
            ConnectionResetError: the lane has broken, which asyncio would only log.
        """
        if lane.transport.is_closing():
            raise ConnectionResetError("a lane has broken")
        if _unsent(lane) > _LANE_BYTES:
            metrics.LEFT_OUT.inc()
            return
        lane.writelines((head.encode(), content))
        metrics.BYTES.labels("sent").inc(Head.BYTES + len(content))

    async def _room(self) -> None:
        """Returns when no more than one lane is far behind."""
        while len(behind := [lane.writer for lane in self._lanes if _unsent(lane.writer) > _LANE_BYTES]) > 1:
            catching_up = [asyncio.create_task(writer.drain()) for writer in behind]
            try:
                await asyncio.wait(catching_up, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in catching_up:
                    task.cancel()
                await asyncio.gather(*catching_up, return_exceptions=True)

    async def _receive(self) -> None:
        """Puts the bytes of the lanes together for the connection."""
        await _end_together([self._take(lane.reader) for lane in self._lanes])
        self._local.writer.write_eof()

    async def _take(self, lane: asyncio.StreamReader) -> None:
        """Takes the blocks of one lane, and waits where it is far ahead of the others."""
        while (head := Head.decode(await lane.readexactly(Head.BYTES), len(self._lanes))) != END:
            while head.group > self._assembly.group and self._assembly.held > _MOST_HELD:
                self._advanced.clear()
                await self._advanced.wait()
            content = await lane.readexactly(head.length)
            metrics.BYTES.labels("received").inc(Head.BYTES + len(content))
            restored = self._assembly.restored
            following = self._assembly.add(head, content)
            metrics.RESTORED.inc(self._assembly.restored - restored)
            if following:
                self._advanced.set()
                self._local.writer.write(following)
                await self._local.writer.drain()


def _unsent(writer: asyncio.StreamWriter) -> int:
    """Bytes that the kernel has not taken."""
    return writer.transport.get_write_buffer_size()


async def _end_together(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Runs parts of a connection, which end soon after each other.

    Raises:
        ConnectionAbortedError: one goes on for long.
        The first error of a part. The others are cancelled.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        ended, open_ones = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not any(task.exception() for task in ended):
            ended, open_ones = await asyncio.wait(tasks, timeout=_FAREWELL_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            task.result()
        if open_ones:
            raise ConnectionAbortedError(f"a part of a connection has not ended within {_FAREWELL_SECONDS:g} s")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
