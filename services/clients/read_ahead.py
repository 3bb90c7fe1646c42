"""Samples read in advance: a thread of its own reads some batches ahead of their use."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import TypeVar

from esd.services.runtime.leavable_thread import LeavableThread

BATCHES_AHEAD = 8

T = TypeVar("T")


async def read_ahead(batches: AsyncIterable[T] | Iterable[T], ahead: int = BATCHES_AHEAD) -> AsyncGenerator[T, None]:
    """Yields the batches in order; a source that blocks is read up to `ahead` batches ahead, at least one.

    An error of the source is raised in place of its batch. A source that blocks for ever delays neither the generator,
    whose `aclose` returns at once, nor the end of the process.
    """
    if isinstance(batches, AsyncIterable):
        async for each in batches:
            yield each
        return
    source, thread = iter(batches), LeavableThread("esd-reader")
    drawn: deque[asyncio.Future[T | None]] = deque()
    try:
        while True:
            while len(drawn) < ahead:  # one thread takes them one after the other
                drawn.append(asyncio.wrap_future(thread.submit(next, source, None)))
            if (batch := await drawn.popleft()) is None:
                return
            yield batch
    finally:
        for future in drawn:  # a batch that is being read is not waited for
            future.cancel()
        thread.end()
