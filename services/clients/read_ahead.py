"""Samples that are read while earlier ones are sent: the reader works in a thread of its own, some batches ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable

from services.domain.batches import SampleBatch
from services.runtime.threads import named_threads

BATCHES_AHEAD = 8


async def read_ahead(batches: AsyncIterable[SampleBatch] | Iterable[SampleBatch]) -> AsyncIterator[SampleBatch]:
    """Yields the batches in order; a source that blocks is read up to BATCHES_AHEAD batches ahead.

    An error of the source comes where its batch would have come.
    """
    if isinstance(batches, AsyncIterable):
        async for each in batches:
            yield each
        return
    source = iter(batches)
    loop, thread = asyncio.get_running_loop(), named_threads("esd-reader")
    drawn: deque[asyncio.Future[SampleBatch | None]] = deque()
    try:
        while True:
            while len(drawn) < BATCHES_AHEAD:  # one thread takes them one after the other
                drawn.append(loop.run_in_executor(thread, next, source, None))
            if (batch := await drawn.popleft()) is None:
                return
            yield batch
    finally:
        for future in drawn:  # a batch that is being read is not waited for
            future.cancel()
        thread.shutdown(wait=False, cancel_futures=True)
