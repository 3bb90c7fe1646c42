"""A later call of the same submitter takes the place of a former one, wherever that one waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, Unavailable
from tests.unit.dispatcher.test_merged_submission import settled
from tests.unit.dispatcher.test_submission import Stream, message

ENDED = "a later call of the same submitter feeds part 0 of job test"


@pytest.fixture
async def stream(make_job: Any) -> Stream:
    return Stream(replace(make_job(fields=1), batch_size=8, workloads=(8,), workers=1, submitters=2))


async def feed(stream: Stream, work: Callable[[], Awaitable[Any]], instance: int = 7) -> None:
    async with stream.submission.submitter(0, instance):
        await work()


async def of_a_silent_peer(_: Stream) -> None:
    await asyncio.Event().wait()


async def before_its_turn(stream: Stream) -> None:
    await stream.submission.take_in(message(0, 4))
    await stream.submission.take_in(message(4, 4))


async def at_its_end(stream: Stream) -> None:
    await stream.submission.take_in(message(0, 4))
    await stream.submission.end()


@pytest.mark.parametrize(("waits", "taken"), [(of_a_silent_peer, 0), (before_its_turn, 4), (at_its_end, 4)])
async def test_a_former_call_ends_where_it_waits_before_the_later_one_begins(
    stream: Stream, waits: Callable[[Stream], Awaitable[None]], taken: int
) -> None:
    former = asyncio.create_task(feed(stream, lambda: waits(stream)))
    await settled()
    assert not former.done()
    async with stream.submission.submitter(0, 7):
        with pytest.raises(Unavailable, match=ENDED):
            await former
        assert await stream.submission.taken() == taken
        assert stream.submission.feeds[0].waiting_bytes == 0
        assert stream.submission.feeds[0].fed
    assert not stream.submission.feeds[0].fed


async def test_samples_that_are_being_logged_count_for_the_later_call(stream: Stream) -> None:
    append, may_log = stream.log.append_samples, asyncio.Event()

    async def append_late(entry: LogEntry, epoch: int) -> None:
        await may_log.wait()
        await append(entry, epoch)

    stream.log.append_samples = append_late
    former = asyncio.create_task(feed(stream, lambda: stream.submission.take_in(message(0, 4))))
    await settled()
    async with stream.submission.submitter(0, 7):
        taken = asyncio.create_task(stream.submission.taken())
        await settled()
        assert (former.done(), taken.done()) == (True, False)
        may_log.set()
        assert await taken == 4
    assert [(entry.position, entry.samples) for entry in stream.log.entries] == [(0, 4)]
    await asyncio.gather(former, return_exceptions=True)


async def test_of_many_calls_one_feeds_and_the_last_one_stays(stream: Stream) -> None:
    feeding: list[int] = []

    async def once(number: int) -> None:
        async with stream.submission.submitter(0, 7):
            feeding.append(number)
            try:
                assert feeding == [number]
                await asyncio.Event().wait()
            finally:
                feeding.remove(number)

    calls = [asyncio.create_task(once(number)) for number in range(5)]
    for _ in calls:
        await settled()
    assert [call.done() for call in calls] == [True, True, True, True, False]
    assert all(isinstance(call.exception(), Unavailable) for call in calls[:4])
    calls[-1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize(("former", "later"), [(7, 8), (7, 0), (0, 7), (0, 0)])
async def test_another_submitter_is_refused(stream: Stream, former: int, later: int) -> None:
    async with stream.submission.submitter(0, former):
        with pytest.raises(FailedPrecondition, match="another Submit call feeds part 0 of job test"):
            await feed(stream, asyncio.Event().wait, later)
    async with stream.submission.submitter(0, later):
        pass


async def test_a_call_that_is_cut_off_ends_as_such(stream: Stream) -> None:
    cut = asyncio.create_task(feed(stream, asyncio.Event().wait))
    await settled()
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    with pytest.raises(TimeoutError):
        async with stream.submission.submitter(0, 7):
            raise TimeoutError
    assert not stream.submission.feeds[0].fed
