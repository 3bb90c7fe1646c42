"""Parts of a stream are logged and queued in their turns; samples that come early wait in their call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from esd.protos import common_pb2
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.wire.batches import decode_batch
from tests.support.stream_parts import merged
from tests.unit.dispatcher.test_submission import Stream, message

SHARES = (4, 3)  # of a global batch


@pytest.fixture
async def stream(make_job: Any) -> Stream:
    return Stream(replace(make_job(fields=1), batch_size=7, workloads=(7,), workers=1, submitters=2))


async def settled() -> None:
    """Lets every task go on until it waits for another."""
    for _ in range(20):
        await asyncio.sleep(0)


def logged(stream: Stream) -> list[tuple[int, list[int]]]:
    """The part and the ids of each entry."""
    messages = [common_pb2.SampleBatch.FromString(entry.batch) for entry in stream.log.entries if entry.batch]
    return [(message.part, decode_batch(message).ids.tolist()) for message in messages]


async def test_samples_are_logged_and_acknowledged_in_their_turns(stream: Stream) -> None:
    early = asyncio.create_task(stream.submission.take_in(message(100, 5), part=1))
    await settled()
    assert (logged(stream), stream.submission.feeds[1].waiting_bytes) == ([], 5 * (8 + 8 + 4))
    await stream.submission.take_in(message(0, 4), part=0)
    await settled()
    assert not early.done()  # two samples of it are left to its next turn
    assert await stream.submission.taken(1) == 3
    await stream.submission.take_in(message(4, 4), part=0)
    await early
    assert logged(stream) == [(0, [0, 1, 2, 3]), (1, [100, 101, 102]), (0, [4, 5, 6, 7]), (1, [103, 104])]
    assert [entry.position for entry in stream.log.entries] == [0, 4, 7, 11]
    assert stream.submission.feeds[1].waiting_bytes == 0


@pytest.mark.parametrize("seed", range(5))
async def test_any_timing_gives_the_same_order(stream: Stream, seed: int) -> None:
    rng, lengths = np.random.default_rng(seed), (53, 20)

    async def submit(part: int) -> None:
        position = 0
        while position < lengths[part]:
            for _ in range(rng.integers(0, 9)):
                await asyncio.sleep(0)
            count = min(int(rng.integers(1, 9)), lengths[part] - position)
            await stream.submission.take_in(message(100 * part + position, count), position, part)
            position += count
        await stream.submission.end(part)

    await asyncio.gather(submit(0), submit(1))
    order = merged([range(53), range(100, 120)], SHARES)
    assert [number for _, ids in logged(stream) for number in ids] == order
    assert stream.samples.closed
    assert stream.log.entries[-1].closes


async def test_the_end_of_a_part_is_answered_when_the_log_shows_it(stream: Stream) -> None:
    await stream.submission.take_in(message(0, 2), part=0)
    end = asyncio.create_task(stream.submission.end(0))
    await settled()
    assert not end.done()  # a dispatcher that came now would wait for more of the part
    await stream.submission.take_in(message(100, 1), part=1)
    await end
    assert [part.ended for part in stream.samples.place.parts] == [True, False]
    await stream.submission.end(0)
    with pytest.raises(FailedPrecondition, match="the sample stream of part 0 of job test has ended after 2 samples"):
        await stream.submission.take_in(message(2, 1), part=0)
    await stream.submission.end(1)
    assert [entry.closes for entry in stream.log.entries] == [False, False, True]


async def test_a_call_that_is_cut_off_gives_its_later_samples_back(stream: Stream) -> None:
    cut = asyncio.create_task(stream.submission.take_in(message(0, 10), part=0))
    await settled()
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    assert (await stream.submission.taken(0), stream.submission.feeds[0].waiting_bytes) == (4, 0)
    await stream.submission.take_in(message(100, 3), part=1)
    await stream.submission.take_in(message(2, 5), 2, part=0)
    assert logged(stream) == [(0, [0, 1, 2, 3]), (1, [100, 101, 102]), (0, [4, 5, 6])]


async def test_parts_that_are_not_there_or_fed_twice_are_refused(stream: Stream, make_job: Any) -> None:
    submission = stream.submission
    with pytest.raises(InvalidArgument, match=r"test has 2 parts \(submitters\), and the call names none: give part"):
        await submission.submitter().__aenter__()
    with pytest.raises(InvalidArgument, match=r"part is 2 \(--part\), and the stream of job test has 2 parts .*0 to 1"):
        await submission.submitter(2).__aenter__()
    async with submission.submitter(1) as part, submission.submitter(0):
        assert part == 1
        with pytest.raises(FailedPrecondition, match="another Submit call feeds part 1 of job test"):
            await submission.submitter(1).__aenter__()
    alone = Stream(make_job(fields=1)).submission
    with pytest.raises(InvalidArgument, match=r"part is 1 \(--part\), and the stream of job test has one part, number"):
        await alone.submitter(1).__aenter__()
    async with alone.submitter(0):
        with pytest.raises(FailedPrecondition, match="another Submit call feeds job test"):
            await alone.submitter().__aenter__()


async def test_the_part_that_holds_the_others_up_is_known(stream: Stream) -> None:
    submission = stream.submission
    async with submission.submitter(0), submission.submitter(1):
        assert [submission.awaited(part) for part in (0, 1)] == [0.0, 0.0]  # nobody has samples: the stream pauses
        early = asyncio.create_task(submission.take_in(message(100, 1), part=1))
        await settled()
        assert submission.awaited(0) > 0.0 == submission.awaited(1)
        await submission.take_in(message(0, 4), part=0)
        await early
        assert [submission.awaited(part) for part in (0, 1)] == [0.0, 0.0]
        assert submission.silence == 0.0
    assert submission.awaited(1) > 0.0 == submission.awaited(0)  # nobody submits the part whose turn it is
    assert submission.silence > 0.0
    await asyncio.gather(submission.end(0), submission.end(1))
    assert submission.silence == submission.awaited(1) == 0.0
