"""Streams of sums that break: the worker continues on another one, or is refused by name."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
import pytest

from esd.services.domain.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, StaleEpoch, Unavailable
from esd.services.domain.sum_pieces import PIECE_BYTES, SumMember, SumPiece, pieces_of_shard
from esd.services.runtime import metrics
from esd.services.wire.sums import encode_pieces
from tests.support.sums import RawSums, member, sums

WHOLE = PIECE_BYTES // 4  # values of a piece
LENGTH = 3 * WHOLE
VECTORS = [np.random.default_rng(slot).normal(size=LENGTH).astype(np.float32) for slot in range(2)]
SUM = VECTORS[0] + VECTORS[1]


def held() -> float:
    return metrics.SUM_HELD_BYTES.collect()[0].samples[0].value


async def send(stream: RawSums, slot: int, *numbers: int) -> None:
    """Sends pieces of a member's vector."""
    for number, name in enumerate(pieces_of_shard(0, 0, VECTORS[slot], 0, 1)):
        if number in numbers:
            values = VECTORS[slot][name.start : name.start + name.values]
            await stream.send(encode_pieces([SumPiece(name, values)], stream.received))


class Group:
    """Two members, whose streams the test opens and breaks."""

    def __init__(self, client, stack: AsyncExitStack, patience: float = 60) -> None:
        self._client = client
        self._stack = stack
        self.members = [member(slot, patience=patience) for slot in range(2)]

    async def stream(self, introduced: SumMember) -> RawSums:
        return await self._stack.enter_async_context(sums(self._client.channel, introduced))

    async def join(self) -> list[RawSums]:
        streams = [await self.stream(each) for each in self.members]
        assert [await each.joined() for each in streams] == [0, 0]
        return streams

    async def resume(self, slot: int, received: int) -> RawSums:
        return await self.stream(replace(self.members[slot], resumes=True, sums=received))


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def expect(stream: RawSums, number: int) -> None:
    found = await stream.read()
    assert found.name.start == number * WHOLE
    assert found.values.tobytes() == SUM[number * WHOLE : (number + 1) * WHOLE].tobytes()


@pytest.mark.parametrize("silently", [False, True], ids=["reset", "still open"])
async def test_both_sides_continue_where_they_have_stopped(client, stack, silently):
    group = Group(client, stack)
    first, second = await group.join()
    await send(first, 0, 0, 1, 2)
    await send(second, 1, 0, 1)
    await expect(first, 0)
    await expect(first, 1)  # the server has both pieces, and has sent both sums
    if not silently:
        second.cancel()
    again = await group.resume(1, 1)
    assert await again.joined() == 2
    await expect(again, 1)
    await send(again, 1, 2)
    await expect(again, 2)
    await expect(first, 2)
    if silently:
        with pytest.raises(FailedPrecondition, match="worker slot 1 sums on a later stream"):
            await second.ended()


async def test_the_others_do_not_notice_a_break_between_two_sums(client, stack):
    group = Group(client, stack)
    first, second = await group.join()
    for each in (first, second):
        each.cancel()
    first, second = [await group.resume(slot, 0) for slot in range(2)]
    for slot, stream in enumerate((first, second)):
        assert await stream.joined() == 0
        await send(stream, slot, 0, 1, 2)
    for stream in (first, second):
        for number in range(3):
            await expect(stream, number)
        await stream.leave()
        await stream.ended()
    assert held() == 0


async def test_half_a_gradient_is_waited_for_and_its_sender_named(client, stack):
    group = Group(client, stack, patience=1)
    first, second = await group.join()
    await send(first, 0, 0, 1, 2)
    await send(second, 1, 0)
    await second.close()
    with pytest.raises(DeadlineExceeded, match=f"worker slot 1 has not sent values {WHOLE} to {2 * WHOLE - 1} .* for"):
        await first.ended()
    with pytest.raises(
        FailedPrecondition, match=r"the sums of epoch 0 (have failed: worker slot 1|of table 't', with)"
    ):
        await (await group.resume(1, 0)).ended()


async def test_a_group_whose_members_do_not_come_back_ends_and_holds_no_memory(client, stack):
    group = Group(client, stack, patience=0.5)
    first, second = await group.join()
    await send(first, 0, 0)
    await send(second, 1, 0)
    await expect(first, 0)
    assert held() > PIECE_BYTES
    for each in (first, second):
        each.cancel()
    async with asyncio.timeout(60):
        while held():  # noqa: ASYNC110 - a gauge reports no changes
            await asyncio.sleep(0.05)
    with pytest.raises(FailedPrecondition, match="with which worker slot 1 would continue, are not here any more"):
        await (await group.resume(1, 1)).ended()


async def test_a_member_that_leaves_is_not_waited_for(client, stack):
    group = Group(client, stack)
    first, second = await group.join()
    await second.leave()
    await second.ended()
    with pytest.raises(FailedPrecondition, match="worker slot 1 sums in epoch 0 on another stream already"):
        await (await group.resume(1, 0)).ended()
    await send(first, 0, 0)
    with pytest.raises(Unavailable, match="worker slot 1 has left the sums"):
        await first.ended()


async def test_a_stream_that_breaks_before_all_have_come_leaves_its_place_to_another(client, stack):
    group = Group(client, stack)
    early = await group.stream(member(0))
    early.cancel()
    async with asyncio.timeout(60):
        while True:
            first = await group.stream(group.members[0])
            second = await group.stream(group.members[1])
            try:
                assert [await first.joined(), await second.joined()] == [0, 0]
            except FailedPrecondition:  # the server has not yet noticed that the first stream is gone
                second.cancel()
            else:
                break


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"instance": 2**63}, FailedPrecondition, "worker slot 1 sums in epoch 0 on another stream already"),
        ({"epoch": 7}, StaleEpoch, "epoch 7 is not the epoch of table 't'"),
        ({"sums": 2}, InvalidArgument, r"worker slot 1 reports that it has 2 pieces of sums, it must be in 0\.\.1"),
        ({"resumes": False, "sums": 1}, InvalidArgument, "worker slot 1 has 1 pieces of sums before its first stream"),
    ],
)
async def test_a_stranger_cannot_continue_for_a_worker(client, stack, changes, error, text):
    group = Group(client, stack)
    first, second = await group.join()
    await send(first, 0, 0)
    await send(second, 1, 0)
    await expect(first, 0)
    with pytest.raises(error, match=text):
        await (await group.stream(replace(group.members[1], **({"resumes": True} | changes)))).ended()
    await expect(second, 0)


async def test_a_worker_that_claims_sums_which_it_cannot_have_is_refused(client, stack):
    group = Group(client, stack)
    first, second = await group.join()
    first.received = 1
    await send(first, 0, 0)
    with pytest.raises(InvalidArgument, match=r"worker slot 0 reports that it has 1 pieces of sums, .* in 0\.\.0"):
        await first.ended()
    with pytest.raises(Unavailable, match="refused worker slot 0"):
        await second.ended()


async def test_sums_that_all_members_have_are_dropped(client, stack):
    first, second = await Group(client, stack).join()
    for iteration in range(3):
        for vector, stream in zip(VECTORS, (first, second), strict=True):
            await stream.send_vector(vector, iteration)
        for stream in (first, second):
            assert (await stream.read_vector(LENGTH)).tobytes() == SUM.tobytes()
        assert 4 * LENGTH < held() < 4 * LENGTH + 3 * 100


async def test_sums_are_dropped_for_want_of_memory_and_then_no_stream_continues(start):
    client = await start(max_sum_bytes=2**20)
    await client.create_table()
    length, count = 40 * WHOLE, 14  # pieces
    async with AsyncExitStack() as stack:
        group = Group(client, stack)
        first, second = await group.join()
        vector = np.ones(length, np.float32)
        reading = [asyncio.create_task(each.read_vector(length)) for each in (first, second)]
        await asyncio.gather(*(each.send_vector(vector) for each in (first, second)))
        assert all((found == 2).all() for found in await asyncio.gather(*reading))
        assert held() <= 2**20
        second.cancel()
        with pytest.raises(FailedPrecondition, match=r"slot 1 lacks the pieces .* from number 0 on.*MAX_SUM_BYTES"):
            await (await group.resume(1, 0)).ended()
        again = await group.resume(1, count)
        assert await again.joined() == count
        for stream in (first, again):
            await stream.send_vector(vector[:5], 1)
        assert [(await stream.read_vector(5)).tolist() for stream in (first, again)] == 2 * [5 * [2.0]]


async def test_an_epoch_that_begins_ends_the_sums_of_members_that_are_away(client, stack):
    group = Group(client, stack)
    first, second = await group.join()
    second.cancel()
    await client.begin_epoch(1, takes_over=False)
    with pytest.raises(StaleEpoch, match="epoch 0 of table 't' is over"):
        await first.ended()
    with pytest.raises(StaleEpoch, match="epoch 0 is not the epoch of table 't'"):
        await (await group.resume(1, 0)).ended()
