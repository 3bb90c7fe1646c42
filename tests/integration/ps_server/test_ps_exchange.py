"""The exchange over real gRPC: frames that store and pull, answers in any order, credit, and how a stream ends."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from esd.ps_server.service.exchange import ExchangeService
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    Overloaded,
    StaleEpoch,
    StaleVersion,
)
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.worker_set import WorkerSet
from esd.services.wire.exchange import MAX_FRAME_BYTES, Credit
from tests.support.exchange import METHOD, answered_rows, exchange
from tests.support.frames import NO_GRADIENTS, SPEC, frame, gradient_push, row_push
from tests.support.server_client import ServerClient


@pytest.fixture
async def client(start, any_store):
    client = await start(**any_store)
    await client.create_table()
    return client


@pytest.fixture
async def stream(client):
    async with exchange(client.channel) as stream:
        yield stream


async def waiting(client, pulls):
    """Returns when this number of pulls waits."""
    async with asyncio.timeout(60):
        while (await client.describe()).tables[0].waiting_pulls != pulls:
            pass


async def test_a_frame_stores_and_pulls_in_one_exchange(stream):
    await stream.write(
        frame(1, row_push([1, 2], 1, 0.5), gradient_push(0, [3], 1, 0b1, 1.0), pull=([2, 3, 9], [1, 1, 0]))
    )
    answers = await stream.answer(1)
    stored = [(each.newly_stored, each.already_known) for each in answers if each.stored]
    assert (stored, [each.done for each in answers]) == ([(3, 0)], [False] * (len(answers) - 1) + [True])
    assert not answers[-1].positions
    assert answers[-1].initial == b"\0\0\1"  # row 9 was never trained
    rows = np.frombuffer(answers[-1].rows, np.float32).reshape(2, SPEC.row_width)
    assert (rows[0] == 0.5).all()
    await stream.write(frame(2, pull=([2], 1)))
    np.testing.assert_array_equal(await stream.rows(2, 1), rows[:1])
    await stream.end()


async def test_a_frame_that_is_sent_again_stores_nothing_twice(client, stream):
    both = row_push([1], 1, 0.5), gradient_push(0, [3], 1, 0b11, 1.0)
    await stream.write(frame(1, *both), frame(2, *both))
    first, again = (await stream.answer(1))[0], (await stream.answer(2))[0]
    assert (first.newly_stored, first.already_known) == (2, 0)
    assert (again.newly_stored, again.already_known) == (0, 2)
    table = (await client.describe()).tables[0]
    assert (table.rows, table.pending_gradients) == (1, 1)


async def test_rows_that_are_there_come_first_and_the_others_when_they_are_pushed(client, stream):
    await stream.write(frame(1, row_push([1, 3], 1, 1.0)))
    await stream.answer(1)
    await stream.write(frame(2, pull=([1, 2, 3, 4], [1, 1, 1, 1])))
    first = await stream.read()
    assert (first.sequence, first.done, first.stored) == (2, False, False)
    assert np.frombuffer(first.positions, np.uint32).tolist() == [0, 2]
    async with exchange(client.channel) as other:
        await other.write(frame(1, row_push([2], 1, 2.0)), frame(2, row_push([4], 1, 4.0)))
        await other.answer(2)
    rest = await stream.read()
    assert (np.frombuffer(rest.positions, np.uint32).tolist(), rest.done) == ([1, 3], True)
    assert np.frombuffer(rest.rows, np.float32).reshape(2, -1)[:, 0].tolist() == [2, 4]


async def test_a_push_is_acknowledged_while_the_pulls_of_its_frame_wait(client, stream):
    await stream.write(frame(1, row_push([1], 1, 1.0), pull=([2], 1)))
    stored = await stream.read()
    assert (stored.sequence, stored.stored, stored.done) == (1, True, False)
    await waiting(client, 1)
    await stream.write(frame(2, row_push([2], 1, 2.0)))
    assert (await stream.answer(2))[0].done
    assert (await stream.rows(1, 1))[0, 0] == 2


async def test_a_pull_may_be_larger_than_an_answer(stream):
    ids = np.arange(20_000)
    parts = np.array_split(ids, 8)
    for sequence, part in enumerate(parts, 1):
        await stream.write(frame(sequence, row_push(part, 1, part[:, None])))
        await stream.answer(sequence)
    await stream.write(frame(9, pull=(ids, 1)))
    answers = await stream.answer(9)
    assert len(answers) == 4
    assert all(answer.ByteSize() <= MAX_FRAME_BYTES for answer in answers)
    await stream.write(frame(10, pull=(ids, 1)))
    assert (await stream.rows(10, len(ids)))[:, 0].tolist() == ids.tolist()


async def test_parts_of_a_large_pull_do_not_wait_for_each_other(client, stream):
    ids = np.arange(12_000)
    await stream.write(frame(1, pull=(ids, np.where(ids == 5, 1, 0))))
    await waiting(client, 1)
    first, second, third = [await stream.read() for _ in range(3)]
    assert len(first.positions) == 4 * len(first.initial)
    assert (first.rows, second.rows, third.rows) == (b"", b"", b"")  # they were never trained
    assert (second.positions, third.positions) == (b"", b"")  # they follow the row before
    await stream.write(frame(2, row_push([5], 1, 5.0)))
    last = (await stream.answer(1))[-1]
    assert np.frombuffer(last.positions, np.uint32).tolist() == [5]


async def test_gradients_wait_for_the_version_before_theirs(client, stream):
    """Worker 1 is ready for version 2 before worker 0 has sent the gradients of version 1; later pushes wait, too."""
    await stream.write(
        frame(1, gradient_push(1, [5], 2, 0b10, 1.0)), frame(2, pull=([5], 2)), frame(3, row_push([7], 1, 1.0))
    )
    await waiting(client, 2)
    assert (await client.describe()).tables[0].rows == 0
    async with exchange(client.channel) as other:
        await other.write(frame(1, gradient_push(0, [5], 1, 0b1, 1.0)))
        assert (await other.answer(1))[0].newly_stored == 1
        together = await stream.rows(2, 1)
        assert (await stream.answer(1))[0].newly_stored == 1
        assert (await stream.answer(3))[0].newly_stored == 1
        await other.write(
            frame(2, gradient_push(0, [6], 1, 0b1, 1.0)), frame(3, gradient_push(1, [6], 2, 0b10, 1.0), pull=([6], 2))
        )
        in_order = await other.rows(3, 1)
    assert (together[0, SPEC.dimension :] == in_order[0, SPEC.dimension :]).all()
    await waiting(client, 0)


async def test_a_pull_is_answered_before_the_push_of_its_frame_is_stored(client, stream):
    """The push waits for its turn meanwhile; the later frames of the stream pull at once, and store after it."""
    await stream.write(
        frame(1, gradient_push(1, [5], 2, 0b10, 1.0), pull=([8], 0)), frame(2, row_push([7], 1, 7.0), pull=([9], 0))
    )
    for sequence in (1, 2):
        pulled = await stream.read()
        assert (pulled.sequence, pulled.initial, pulled.stored, pulled.done) == (sequence, b"\1", False, False)
    async with exchange(client.channel) as other:
        await other.write(frame(1, gradient_push(0, [5], 1, 0b1, 1.0)))
        await other.answer(1)
    for sequence in (1, 2):
        stored = await stream.read()
        assert (stored.sequence, stored.rows, stored.newly_stored, stored.done) == (sequence, b"", 1, True)
    assert (await client.describe()).tables[0].rows == 2


async def test_every_frame_is_acknowledged_once_and_ended_once_in_any_order(client, stream):
    """Two streams pull the rows of each other, so that rows and acknowledgements come at once."""
    frames = range(1, 61)
    async with exchange(client.channel) as other:
        for number in frames:
            await stream.write(frame(number, row_push([number], 1, 1.0), pull=([1000 + number], 1)))
            await other.write(frame(number, row_push([1000 + number], 1, 2.0), pull=([number], 1)))
        for each in (stream, other):
            for number in frames:
                answers = await each.answer(number)
                assert sum(answer.newly_stored for answer in answers if answer.stored) == 1
                assert sum(len(answer.rows) for answer in answers) == SPEC.row_bytes
            await each.end()


async def test_pulls_that_fail_before_their_push_is_stored_are_refused_after_it(client, stream):
    await stream.write(frame(1, row_push([3], 5, 1.0)))
    await stream.answer(1)
    await stream.write(frame(2, gradient_push(1, [5], 2, 0b10, 1.0), pull=([3], 4)), frame(3, pull=([3], 5)))
    assert (await stream.rows(3, 1) == 1.0).all()  # the pull of frame 2 has been read before this one
    async with exchange(client.channel) as other:
        await other.write(frame(1, gradient_push(0, [5], 1, 0b1, 1.0)))
        await other.answer(1)
    (answer,) = await stream.answer(2)
    assert (answer.newly_stored, answer.done) == (1, True)
    assert "row 3 is at version 5" in answer.refusal.message


async def test_a_refused_push_ends_its_frame_after_its_pulls_were_answered(stream):
    long_enough = 500  # for the row that is there to be read first
    await stream.write(frame(1, gradient_push(1, [5], 2, 0b10, 1.0), pull=([8, 9], [0, 1]), wait_ms=long_enough))
    *pulled, refused = await stream.answer(1)
    assert [each.initial for each in pulled] == [b"\1"]
    assert (refused.stored, "in time" in refused.refusal.message) == (False, True)


async def test_gradients_that_a_worker_pushes_alone_wait_too(client):
    def push(worker, version):
        numbers, rates = np.array([version]), np.array([0.1], np.float32)
        contributors, steps = np.array([1 << worker], np.uint64), np.array([version], np.uint32)
        values = np.ones((1, SPEC.dimension), np.float32)
        ids = np.array([5], np.uint64)
        no_rows = RowBlock(ids[:0], numbers[:0], np.empty((0, SPEC.row_width), np.float32))
        return Parcel(no_rows, GradientBlock(ids, numbers, contributors, steps, rates, values, worker))

    async with (
        ServerClient(client.address, SPEC) as fast,
        ServerClient(client.address, SPEC) as slow,
        asyncio.TaskGroup() as tasks,
    ):
        behind = tasks.create_task(fast.push(push(1, 2)))
        await waiting(client, 1)
        assert not behind.done()
        await slow.push(push(0, 1))
        await behind
        versions, _ = await slow.look_up(np.array([5], np.uint64))
    assert versions.tolist() == [2]


async def test_gradients_wait_no_longer_than_they_may(stream):
    await stream.write(frame(1, gradient_push(1, [5], 2, 0b10, 1.0), wait_ms=50))
    with pytest.raises(DeadlineExceeded, match="row 5 has not reached version 1 in time"):
        await stream.checked(1)


async def test_a_pull_waits_no_longer_than_it_may(client, stream):
    await stream.write(frame(1, pull=([8, 9], [0, 4]), wait_ms=50), frame(2, pull=([7], 1), wait_ms=0))
    with pytest.raises(DeadlineExceeded, match="row 7 has not reached version 1 in time"):
        await stream.rows(2, 1)
    with pytest.raises(DeadlineExceeded, match="row 9 has not reached version 4 in time"):
        await stream.rows(1, 2)
    await waiting(client, 0)


async def test_a_pull_does_not_wait_for_rows_of_an_epoch_that_is_over(client, stream):
    await stream.write(frame(1, row_push([1], 1, 1.0), pull=([2], 1)))
    await waiting(client, 1)
    await client.restore(0, epoch=1)
    with pytest.raises(StaleEpoch, match="table 't' has gone back to checkpoint 0 and is in epoch 1"):
        await stream.rows(1, 1)
    await waiting(client, 0)


async def test_a_way_back_that_comes_again_disturbs_nobody_in_its_epoch(client, stream):
    """As an attempt that its caller had given up, and that runs when the epoch trains already."""
    await client.restore(0, epoch=1)
    await stream.write(frame(1, row_push([1], 1, 1.0), pull=([2], 1), epoch=1))
    await waiting(client, 1)
    assert await client.restore(0, epoch=1) == 0
    await stream.write(frame(2, row_push([2], 1, 1.0), pull=([1], 1), epoch=1))
    assert (await stream.rows(2, 1) == 1.0).all()
    assert (await stream.rows(1, 1) == 1.0).all()


async def test_a_pull_that_is_overtaken_is_refused_and_its_push_stays(client, stream):
    await stream.write(frame(1, row_push([1], 2, 1.0), pull=([1], 1)))
    answers = await stream.answer(1)
    assert [each.newly_stored for each in answers if each.stored] == [1]
    assert "row 1 is at version 2" in answers[-1].refusal.message
    await stream.write(frame(2, pull=([2], 1)))
    await waiting(client, 1)
    await stream.write(frame(3, row_push([2], 2, 1.0)))
    with pytest.raises(StaleVersion, match="row 2 is at version 2, the pull wants the older version 1"):
        await stream.rows(2, 1)
    assert (await client.describe()).tables[0].rows == 2


async def test_frames_beyond_the_credit_are_refused_one_by_one(start):
    client = await start(exchange_frames=2)
    await client.create_table()
    async with exchange(client.channel) as stream:
        assert stream.credit == Credit(2, 8 * 2**20)
        await stream.write(frame(1, pull=([1], 1)), frame(2, pull=([2], 1)))
        await waiting(client, 2)
        await stream.write(frame(3, row_push([1], 1, 1.0)))
        with pytest.raises(Overloaded, match=r"3 frames of this stream are unanswered, .* ESD_PS_EXCHANGE_FRAMES=2"):
            await stream.rows(3, 0)
        async with exchange(client.channel) as other:
            await other.write(frame(1, row_push([1, 2], 1, 1.0)))
            await other.answer(1)
        await stream.rows(1, 1)
        await stream.write(frame(4, row_push([3], 1, 1.0)))
        await stream.answer(4)
        await stream.rows(2, 1)
        await stream.end()


class LateWriter:
    """A server's side of a stream on which the peer's next frame comes before gRPC tells that an answer is written."""

    def __init__(self, context):
        self._context = context
        self._came = asyncio.Event()
        self._writes = 0

    async def read(self):
        data = await self._context.read()
        self._came.set()
        return data

    async def write(self, message):
        self._came.clear()
        await self._context.write(message)
        self._writes += 1
        if self._writes in (2, 3):  # the first two answers behind the credit
            await self._came.wait()

    def done(self):
        return self._context.done()


async def test_who_has_read_an_answer_may_send_the_next_frame_at_once(start, monkeypatch):
    serve = ExchangeService.serve
    monkeypatch.setattr(ExchangeService, "serve", lambda shared, context: serve(shared, LateWriter(context)))
    client = await start(exchange_frames=2)
    await client.create_table()
    async with exchange(client.channel) as stream:
        await stream.write(frame(1, pull=([9], 1)))  # waits, and is one of the two
        for sequence in range(2, 5):
            await stream.write(frame(sequence, row_push([1], sequence, 1.0)))
            await stream.checked(sequence)


@pytest.mark.parametrize("message_bytes", [1000, 4000], ids=["pulls by themselves", "pulls beside pushes"])
async def test_workers_that_pull_what_the_other_pushes_never_wait_in_a_circle(start, message_bytes):
    credit, count, pushed = 4, 40, 2
    server = await start(exchange_frames=credit)
    await server.create_table()
    traffic = Traffic()
    traffic.chunk_bytes = message_bytes
    own, other = np.arange(count, dtype=np.uint64), np.arange(count, 2 * count, dtype=np.uint64)
    async with AsyncExitStack() as stack:
        frames, rooms = [], []
        for pushes, pulls in ((own, other), (other, own)):
            client = ServerClient(server.address, SPEC, timeout=60, traffic=traffic)
            await stack.enter_async_context(client)
            rooms.append(np.zeros((count, SPEC.row_width), np.float32))
            for at in range(0, count, pushed):  # what is pulled first is pushed last
                first, last = np.arange(at, at + pushed), np.arange(count - at - pushed, count - at)
                ones = np.ones(pushed, np.int64)
                rows = RowBlock(pushes[first], ones, np.full((pushed, SPEC.row_width), 7.0, np.float32))
                parcel = Parcel(rows, NO_GRADIENTS, Pulls(pulls[last], ones, last))
                frames += client.exchange(parcel, rooms[-1])
        assert len(frames) == 2 * count // pushed * (1 if message_bytes == 4000 else 2)
        await asyncio.gather(*(future for frame in frames for future in (frame.stored, frame.pulled)))
        assert all((room == 7.0).all() for room in rooms)


async def test_the_bytes_of_unanswered_frames_are_bounded(start):
    client = await start(exchange_bytes=2 * 2**20)
    await client.create_table()
    many = np.arange(40_000)
    async with exchange(client.channel) as stream:
        for sequence in range(1, 5):
            await stream.write(frame(sequence, pull=(many, 1)))
        with pytest.raises(Overloaded, match=r"frames of this stream have 2.* ESD_PS_EXCHANGE_BYTES=2097152"):
            await stream.rows(4, 0)


async def test_a_stream_that_is_cancelled_leaves_nothing_waiting(client):
    async with exchange(client.channel) as stream:
        await stream.write(frame(1, pull=([1], 1)))
        await waiting(client, 1)
    await waiting(client, 0)


async def test_a_stream_that_is_closed_is_answered_to_its_end(client, stream):
    await stream.write(frame(1, pull=([1], 1)))
    await waiting(client, 1)
    await stream.close()
    async with exchange(client.channel) as other:
        await other.write(frame(1, row_push([1], 1, 1.0)))
        await other.answer(1)
    assert (await stream.rows(1, 1))[0, 0] == 1
    await stream.end()


async def test_a_finished_table_is_pulled_and_not_pushed(client, stream):
    await stream.write(frame(1, row_push([1], 1, 1.0)))
    await stream.answer(1)
    await client.cut(5, 0, WorkerSet(0b1), epoch=0, last=True)
    for sequence, push in ((2, row_push([1], 2, 2.0)), (3, gradient_push(0, [1], 2, 0b1, 1.0))):
        await stream.write(frame(sequence, push, pull=([1], 1)))
        with pytest.raises(FailedPrecondition, match="table 't' is finished"):
            await stream.checked(sequence)
    await stream.write(frame(4, pull=([1], 1)))
    assert (await stream.rows(4, 1) == 1.0).all()
    await stream.end()


async def test_peers_that_leave_at_once_are_no_defect(client, caplog):
    """They may be gone before the server has granted its credit: before, during and after that write."""
    for round_trips in range(60):
        leaving = [client.channel.stream_stream(METHOD, None, None)() for _ in range(5)]
        for call in leaving:
            await call.write(frame(1, pull=([1], 1)).SerializeToString())
        for _ in range(round_trips % 3):
            await asyncio.sleep(0)
        for call in leaving:
            call.cancel()
    await client.describe()
    await waiting(client, 0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_rows_come_without_their_optimizer_state_where_that_is_not_wanted(client, stream):
    """The values alone, also of rows that come later, in answers in parts; nothing of rows that were never trained."""
    rows = np.arange(4 * SPEC.row_width, dtype=np.float32).reshape(4, -1)
    await stream.write(frame(1, row_push([1, 2, 3, 4], 1, rows), pull=([1, 9, 2, 8, 5], [1, 0, 1, 0, 1]), stateless=3))
    while not (first := await stream.read()).rows:
        assert first.stored
    assert len(first.rows) == SPEC.row_bytes + 4 * SPEC.dimension
    await stream.write(frame(2, row_push([5], 1, 7.0)))
    (last,) = await stream.answer(1)
    assert (np.frombuffer(last.rows, np.float32).tolist(), last.done) == ([7.0] * SPEC.dimension, True)
    got = answered_rows(first, SPEC, 0, 5, stateless=3)
    assert got == {0: rows[0].tobytes(), 1: b"", 2: rows[1, : SPEC.dimension].tobytes(), 3: b""}


async def test_rows_without_trainings_are_marked_in_place_of_being_sent(client, stream):
    """In every life: the stored row of an earlier life counts where the pulled one continues it, and else does not."""
    life = 2**30
    await stream.write(frame(1, row_push([1, 2, 3], 1, [[1.0], [2.0], [3.0]])))
    await stream.answer(1)
    pull = ([1, 2, 3, 4, 5, 6], [1, life, 2 * life, 0, life, 2 * life])
    await stream.write(frame(2, pull=pull, stateless=2))
    answers = await stream.answer(2)
    assert b"".join(answer.initial for answer in answers) == b"\0\0\1\1\1\1"
    rows = np.frombuffer(b"".join(answer.rows for answer in answers), np.float32).reshape(2, SPEC.row_width)
    assert rows[:, 0].tolist() == [1, 2]


async def test_a_client_makes_initial_rows_with_the_bits_of_the_server(client):
    ids = np.arange(100, dtype=np.uint64)
    rows = np.full((100, SPEC.row_width), np.nan, np.float32)
    pushed = RowBlock(ids[:10], np.ones(10, np.int64), np.ones((10, SPEC.row_width), np.float32))
    await client.push(Parcel(pushed))
    await client.pull(ids, np.where(ids < 10, 1, 0), rows)
    assert not rows[10:, SPEC.dimension :].any()
    versions, values = await client.look_up(ids)
    assert versions.tolist() == [1] * 10 + [0] * 90
    np.testing.assert_array_equal(rows[:, : SPEC.dimension], values)


async def test_no_more_rows_than_all_come_without_state(stream):
    await stream.write(frame(1, row_push([1], 1, 1.0), pull=([1, 2], [1, 0]), stateless=3))
    with pytest.raises(InvalidArgument, match=r"pulls\.stateless is 3, the frame pulls only 2 rows"):
        await stream.rows(1, 2)
