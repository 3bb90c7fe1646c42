"""Sums of workers' vectors at a real server: their values, refusals by name, and workers that leave or hang."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from esd.services.domain.errors import (
    DeadlineExceeded,
    EsdError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    StaleEpoch,
    Unavailable,
)
from esd.services.domain.sum_pieces import LONGEST_PIECE, PIECE_BYTES, SumMember
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime import metrics
from esd.services.wire.sums import MAX_MESSAGE_BYTES, encode_member
from tests.support.ps_client import Client
from tests.support.sums import RawSums, member, piece, sums

LONG = PIECE_BYTES // 4 * 2 + 5  # values of a vector of three pieces


async def join(stack: AsyncExitStack, client: Client, workers: int = 2, **how) -> list[RawSums]:
    """Streams of all members of a group."""
    streams = [
        await stack.enter_async_context(sums(client.channel, member(slot, workers, **how))) for slot in range(workers)
    ]
    for stream in streams:
        await stream.joined()
    return streams


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def test_the_sum_is_that_of_the_slots_in_order_however_they_come(client, stack):
    rng = np.random.default_rng(1)
    vectors = [rng.normal(size=LONG).astype(np.float32) for _ in range(3)]
    streams = await join(stack, client, 3)
    for iteration, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 2, 0)]):
        for slot in order:
            await streams[slot].send_vector(vectors[slot], iteration)
        found = [await stream.read_vector(LONG) for stream in streams]
        assert [each.tobytes() for each in found] == 3 * [(vectors[0] + vectors[1] + vectors[2]).tobytes()]
    for stream in streams:
        await stream.leave()
        await stream.ended()
    assert metrics.SUM_HELD_BYTES.collect()[0].samples[0].value == 0


async def test_a_worker_without_samples_sends_no_values(client, stack):
    first, second = await join(stack, client)
    await first.send(piece(length=LONG), piece(start=PIECE_BYTES // 4, length=LONG))
    await second.send_vector(np.ones(LONG, np.float32))
    assert [(await first.read()).values.sum() for _ in range(2)] == 2 * [PIECE_BYTES // 4]
    await second.send(piece(iteration=1, length=3))
    await first.send(piece(start=2 * (PIECE_BYTES // 4), length=LONG), piece(iteration=1, length=3))
    assert (await first.read()).values.tolist() == [1.0] * 5
    assert (await first.read()).values is None


@pytest.mark.parametrize(
    ("introduction", "error", "text"),
    [
        (b"junk", InvalidArgument, "these 4 bytes are no SumRequest"),
        (piece(length=3), InvalidArgument, "the first message of a stream of sums names its group"),
        (bytes(LONGEST_PIECE + 5000), InvalidArgument, f"the message has {LONGEST_PIECE + 5000} bytes"),
        (encode_member(member(0, table="other")), NotFound, "no table 'other'"),
        (encode_member(member(0, epoch=7)), StaleEpoch, "epoch 7 is not the epoch of table 't'"),
        (encode_member(member(2)), InvalidArgument, "worker slot 2 is not one of the members, 0x3"),
        (encode_member(SumMember("t", 0, 70, WorkerSet.of([2]), 1, 0)), InvalidArgument, "worker slot 70 is not"),
        (encode_member(member(0)), FailedPrecondition, "worker slot 0 sums in epoch 0 on another stream already"),
        (
            encode_member(member(1, 3)),
            FailedPrecondition,
            "slot 1 names the members 0x7, and another one has named 0x3",
        ),
    ],
)
async def test_a_stranger_is_refused_and_the_group_goes_on(client, stack, introduction, error, text):
    streams = await join(stack, client)
    async with sums(client.channel) as stranger:
        await stranger.send(introduction)
        with pytest.raises(error, match=text):
            await stranger.ended()
    for stream in streams:
        await stream.send_vector(np.ones(3, np.float32))
    assert [(await stream.read_vector(3)).tolist() for stream in streams] == 2 * [[2.0] * 3]


NAN = np.array([0, np.nan], np.float32).tobytes()
ONES = np.ones(PIECE_BYTES // 4, np.float32).tobytes()


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (b"\xff\xff", InvalidArgument, "these 2 bytes are no SumRequest"),
        (encode_member(member(1)), InvalidArgument, "is no piece of a vector"),
        (b"", InvalidArgument, "is no piece of a vector"),
        (65 * piece(length=1), InvalidArgument, "a message has 65 pieces of vectors, and at most 64 may be"),
        (piece(length=2, values=NAN), InvalidArgument, "worker slot 1 has sent values 0 to 1 .* NaN or infinite"),
        (piece(length=2, values=NAN[:4]), InvalidArgument, r"piece.values has 4 bytes, float32 \[2\] needs 8"),
        (piece(length=2, type=9), InvalidArgument, "piece.type is 9"),
        (piece(length=0), InvalidArgument, "piece.start is 0, it must be a multiple"),
        (piece(start=5, length=9), InvalidArgument, "piece.start is 5, it must be a multiple of 16384 below"),
        (piece(length=2**40), ResourceExhausted, r"worker slot 1 sums a vector of .*ESD_PS_MAX_DENSE_BYTES"),
        (piece(length=3), InvalidArgument, "slot 1 has sent values 0 to 2 of 3 .* another worker has sent values 0"),
    ],
)
async def test_a_wrong_piece_is_refused_and_ends_the_group_with_the_name_of_its_sender(client, stack, bad, error, text):
    first, second = await join(stack, client)
    await first.send_vector(np.ones(LONG, np.float32))
    await second.send(bad)
    with pytest.raises(error, match=text):
        await second.ended()
    with pytest.raises(Unavailable, match="the parameter server has refused worker slot 1: "):
        await first.ended()
    assert len(await join(stack, client)) == 2  # the next group of the epoch


async def test_half_a_gradient_is_refused(client, stack):
    first, second = await join(stack, client)
    await first.send(piece(length=LONG, values=ONES), piece(iteration=1, length=3))
    with pytest.raises(InvalidArgument, match=r"slot 0 has sent .* iteration 1, which does not follow .* iteration 0"):
        await first.ended()
    with pytest.raises(Unavailable, match="refused worker slot 0"):
        await second.ended()


async def test_a_worker_that_leaves_in_the_middle_is_named_at_once(client, stack):
    first, second = await join(stack, client)
    await first.send_vector(np.ones(LONG, np.float32))
    await second.send(piece(length=LONG, values=ONES))
    await first.read()
    await second.leave()
    with pytest.raises(Unavailable, match="worker slot 1 has left the sums of epoch 0, and values 16384 to 32767"):
        await first.ended()


async def test_a_worker_that_leaves_is_missed_when_there_is_something_to_sum(client, stack):
    first, second = await join(stack, client)
    await second.leave()
    await second.ended()
    await first.send_vector(np.ones(3, np.float32))
    with pytest.raises(Unavailable, match="worker slot 1 has left the sums"):
        await first.ended()


async def test_a_worker_that_hangs_is_named_after_the_patience_and_a_slow_one_is_not(client, stack):
    first, second, third = await join(stack, client, 3, patience=1.0)
    await first.send_vector(np.ones(LONG, np.float32))
    for start in range(0, LONG, PIECE_BYTES // 4):  # each within the patience, and all together not
        await asyncio.sleep(0.5)
        await third.send(piece(start=start, length=LONG))
    for stream in (first, second, third):
        with pytest.raises(DeadlineExceeded, match=r"worker slot 1 has not sent values 0 to .* for \d s"):
            await stream.ended()


async def test_idle_members_are_not_late(client, stack):
    streams = await join(stack, client, patience=0.3)
    await asyncio.sleep(1)
    for stream in streams:
        await stream.send_vector(np.ones(3, np.float32))
    assert [(await stream.read_vector(3)).tolist() for stream in streams] == 2 * [[2.0] * 3]


async def test_members_that_do_not_come_are_named(client):
    async with sums(client.channel, member(1, 4, patience=0.5)) as alone:
        with pytest.raises(DeadlineExceeded, match="worker slots 0, 2, 3 have not come"):
            await alone.ended()


async def test_an_epoch_that_begins_ends_the_sums_of_earlier_ones(client, stack):
    streams = await join(stack, client)
    await streams[0].send_vector(np.ones(3, np.float32))
    await client.begin_epoch(1, takes_over=False)
    for stream in streams:
        with pytest.raises(StaleEpoch, match="epoch 0 of table 't' is over, and epoch 1 has begun"):
            await stream.ended()
    first, second = await join(stack, client, epoch=1)
    for stream in (first, second):
        await stream.send_vector(np.ones(3, np.float32))
    assert (await first.read_vector(3)).tolist() == [2.0] * 3


async def test_memory_is_bounded_and_the_sum_is_complete_nevertheless(start):
    """The fast worker's gradients wait in the network until the slow one's come."""
    limit, length = 2**20, 40 * 2**18  # values: 40 MiB
    client = await start(max_sum_bytes=limit)
    await client.create_table()
    async with Client(client.address) as other, AsyncExitStack() as stack:
        first = await stack.enter_async_context(sums(client.channel, member(0)))
        second = await stack.enter_async_context(sums(other.channel, member(1)))
        vector = np.arange(length, dtype=np.float32)
        sending = asyncio.create_task(second.send_vector(vector))
        await first.joined()
        await second.joined()
        done, _ = await asyncio.wait([sending], timeout=2)
        assert not done
        assert metrics.SUM_HELD_BYTES.collect()[0].samples[0].value <= limit + 2 * MAX_MESSAGE_BYTES
        read = asyncio.gather(first.read_vector(length), second.read_vector(length))
        await first.send_vector(vector)
        await sending
        for found in await read:
            assert (found == 2 * vector).all()


async def test_a_worker_that_reads_no_sums_is_not_read_either(start):
    limit, length = 2**20, 40 * 2**18
    client = await start(max_sum_bytes=limit)
    await client.create_table()
    async with Client(client.address) as other, AsyncExitStack() as stack:
        deaf = await stack.enter_async_context(sums(client.channel, member(0, patience=4.0)))
        well = await stack.enter_async_context(sums(other.channel, member(1, patience=4.0)))
        vector = np.ones(length, np.float32)
        sending = [asyncio.create_task(stream.send_vector(vector)) for stream in (deaf, well)]
        with pytest.raises(EsdError, match="worker slot 0 has not taken the sums for"):
            await well.ended()
        assert metrics.SUM_HELD_BYTES.collect()[0].samples[0].value <= 2 * limit + 8 * MAX_MESSAGE_BYTES
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
