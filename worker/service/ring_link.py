"""The bytes of a ring of workers on a worker's link, which gloo sends and not this process's own streams."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import NamedTuple

from esd.worker.service.link import Link


class _Piece(NamedTuple):
    size: int  # bytes that have not passed
    passed: Future[None]


class RingLink:
    """Lets the bytes of a ring pass a link in both directions at once, in chunks, between which messages pass.

    Any thread may call `carry`; the link belongs to the event loop.

    Args:
        link: of the worker.
        loop: in which the other messages pass the link.
    """

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._pieces: deque[_Piece] = deque()

    def carry(self, size: int) -> Future[None]:
        """Counts `size` bytes in each direction; the result is done when they may have passed.

        Raises:
            RuntimeError: the event loop is closed.
        """
        self._link.sent(dense=size)
        self._link.received(dense=size)
        passed: Future[None] = Future()
        if self._link.shaped:
            self._loop.call_soon_threadsafe(self._put, _Piece(size, passed))
        else:
            passed.set_result(None)  # the network holds it back
        return passed

    def _put(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            self._begin_chunk()

    def _begin_chunk(self) -> None:
        """Lets the next chunk of the oldest piece pass."""
        size = min(self._pieces[0].size, self._link.chunk_bytes)
        self._link.push_begins()
        wait = max(self._link.up(size), self._link.down(size))
        self._loop.call_later(wait, self._end_chunk, size)

    def _end_chunk(self, size: int) -> None:
        self._link.push_ends(size)
        piece = self._pieces.popleft()
        if piece.size > size:
            self._pieces.appendleft(piece._replace(size=piece.size - size))
        elif piece.passed.set_running_or_notify_cancel():
            piece.passed.set_result(None)
        while self._pieces and self._pieces[0].passed.cancelled():  # the worker has left the ring
            self._pieces.popleft()
        if self._pieces:
            self._begin_chunk()
