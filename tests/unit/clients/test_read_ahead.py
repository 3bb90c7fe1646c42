"""Reading goes on while earlier samples are sent: in order, bounded, and errors in their place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing

import numpy as np
import pytest

from esd.services.clients.read_ahead import BATCHES_AHEAD, read_ahead
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument


def batch(number: int) -> SampleBatch:
    return SampleBatch.of_fields(
        np.full((1, 1), number, np.uint64), np.zeros((1, 0), np.float32), np.zeros(1, np.float32)
    )


class Source:
    """Records the reads and their threads."""

    def __init__(self, count: int, broken_at: int | None = None) -> None:
        self.count, self.broken_at = count, broken_at
        self.read = 0
        self.threads: set[str] = set()
        self.far = threading.Event()  # as far ahead as may be

    def __iter__(self) -> Iterator[SampleBatch]:
        for number in range(self.count):
            self.threads.add(threading.current_thread().name)
            if number == self.broken_at:
                raise InvalidArgument("a broken line")
            self.read += 1
            if self.read == BATCHES_AHEAD:
                self.far.set()
            yield batch(number)


async def test_batches_come_in_order_from_one_thread_of_their_own() -> None:
    source = Source(3 * BATCHES_AHEAD)
    found = [int(each.ids[0]) async for each in read_ahead(source)]
    assert found == list(range(3 * BATCHES_AHEAD))
    assert len(source.threads) == 1
    assert source.threads.pop().startswith("esd-reader")


async def test_it_reads_ahead_and_no_further() -> None:
    source = Source(100)
    async with aclosing(read_ahead(source)) as stream:
        await anext(stream)
        assert await asyncio.to_thread(source.far.wait, 60)  # although only one batch was taken
        await anext(stream)
    assert source.read <= BATCHES_AHEAD + 1


async def test_an_error_comes_behind_the_batches_before_it() -> None:
    stream = read_ahead(Source(9, broken_at=3))
    assert [int((await anext(stream)).ids[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="a broken line"):
        await anext(stream)


async def test_a_reader_that_hangs_does_not_keep_anybody_who_stops() -> None:
    hanging = threading.Event()

    def source() -> Iterator[SampleBatch]:
        yield batch(0)
        hanging.wait(60)

    stream = read_ahead(source())
    await anext(stream)
    async with asyncio.timeout(60):
        await stream.aclose()  # type: ignore[attr-defined]
    hanging.set()
