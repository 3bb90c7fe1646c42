"""The client's end of an exchange: credit, order, refusals, broken streams, silence, and answers that it rejects."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest

from esd.protos import common_pb2, ps_pb2
from esd.services.clients.frame import Frame
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import (
    EsdError,
    FailedPrecondition,
    Internal,
    PermissionDenied,
    StaleVersion,
    StorageUnwritable,
    Unavailable,
)
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.rows import RowBlock
from esd.services.runtime.status import status_of
from tests.support.frames import SPEC
from tests.support.scripted_exchange import Response, scripted_exchange
from tests.support.server_client import ServerClient


def pulls(*ids: int) -> Pulls:
    return Pulls(np.array(ids, np.uint64), np.ones(len(ids), np.int64), np.arange(len(ids)))


def push_of(*ids: int) -> RowBlock:
    return RowBlock(
        np.array(ids, np.uint64), np.ones(len(ids), np.int64), np.ones((len(ids), SPEC.row_width), np.float32)
    )


def room(count: int) -> np.ndarray:
    return np.zeros((count, SPEC.row_width), np.float32)


def send(client: ServerClient, into: np.ndarray, *ids: int, push: bool = False, **how: Any) -> Frame:
    """Sends one frame that pulls these ids, and pushes rows of the same ids before."""
    (frame,) = client.exchange(Parcel(push_of(*ids if push else ()), pulls=pulls(*ids)), into, **how)
    return frame


def rows(*values: float) -> bytes:
    return np.repeat(np.array(values, np.float32)[:, None], SPEC.row_width, 1).tobytes()


def ids_of(frame: ps_pb2.ExchangeRequest) -> list[int]:
    return np.frombuffer(frame.pulls.ids, np.uint64).tolist()


def refusal(sequence: int, error: EsdError, **fields: Any) -> Response:
    status = status_of(error)
    refusal = common_pb2.Refusal(code=status.code.value[0], reason=status.reason, message=status.details)
    return Response(sequence=sequence, refusal=refusal, done=True, **fields)


async def test_answers_come_in_any_order_and_in_parts() -> None:
    async with scripted_exchange() as (server, client):
        first, second = room(3), room(1)
        frames = send(client, first, 7, 8, 9, push=True), send(client, second, 5)
        one, two = await server.frame(), await server.frame()
        assert (one.table, one.sequence, two.sequence, one.wait_ms) == ("t", 1, 2, 60_000)
        assert (ids_of(one), ids_of(two)) == ([7, 8, 9], [5])
        await server.answer(
            Response(sequence=1, positions=np.array([2], np.uint32).tobytes(), rows=rows(9)),
            Response(sequence=2, rows=rows(5), done=True),
            Response(sequence=1, stored=True, newly_stored=2, already_known=1),
            Response(sequence=1, positions=np.array([0], np.uint32).tobytes(), rows=rows(7)),
            Response(sequence=1, rows=rows(8), done=True),
        )
        await frames[1].pulled
        await frames[0].pulled
        stored = await frames[0].stored
        assert (stored.new, stored.already_known) == (2, 1)
        assert (first[:, 0].tolist(), second[:, 0].tolist()) == ([7, 8, 9], [5])


async def test_a_frame_waits_for_credit_and_an_urgent_one_overtakes_what_was_not_sent() -> None:
    async with scripted_exchange(frames=4) as (server, client):  # of which pulls may take two
        into = room(1)
        frames = [send(client, into, at) for at in (1, 2, 3, 4)]
        seen = [await server.frame(), await server.frame()]
        frames.append(send(client, into, 5, urgent=True))
        assert server.frames.empty()
        for _ in range(3):
            await server.answer(Response(sequence=seen[-1].sequence, rows=rows(1), done=True))
            seen.append(await server.frame())
        await server.answer(*(Response(sequence=seen[at].sequence, rows=rows(1), done=True) for at in (0, -1)))
        for frame in frames:
            await frame.pulled
        assert [ids_of(frame)[0] for frame in seen] == [1, 2, 5, 3, 4]
        sequences = [frame.sequence for frame in seen]
        assert sequences == sorted(set(sequences))


async def test_bytes_have_a_credit_too_and_more_than_all_of_it_is_sent_alone() -> None:
    async with scripted_exchange(size=100) as (server, client):
        into = room(10)
        frames = [send(client, into, *range(10)), send(client, into, 1), send(client, into, 2)]
        big = await server.frame()
        await asyncio.sleep(0.05)
        assert server.frames.empty()
        await server.answer(Response(sequence=big.sequence, rows=rows(*range(10)), done=True))
        for _ in range(2):
            frame = await server.frame()
            await server.answer(Response(sequence=frame.sequence, rows=rows(1), done=True))
        for each in frames:
            await each.pulled


async def test_pulls_that_were_kept_back_leave_the_credit_as_it_is() -> None:
    """One pull takes the half of pulls. Frames go out without their pulls, which wait for as long as that one."""
    async with scripted_exchange(frames=64, size=4096) as (server, client):
        waiting = send(client, room(120), *range(120))
        before = await server.frame()
        kept_back = []
        for number in range(1000, 1004):
            kept_back += client.exchange(Parcel(push_of(number), pulls=pulls(*range(30))), room(30))
            pushed = await server.frame()
            assert (pushed.HasField("rows"), pushed.HasField("pulls")) == (True, False)
            await server.answer(Response(sequence=pushed.sequence, stored=True, newly_stored=1, done=True))
            await kept_back[-1].stored
        (last,) = client.exchange(Parcel(push_of(5)))
        pushed = await server.frame()
        assert pushed.HasField("rows"), "more is pulled than the half of pulls allows"
        await server.answer(
            Response(sequence=pushed.sequence, stored=True, newly_stored=1, done=True),
            Response(sequence=before.sequence, rows=rows(*range(120)), done=True),
        )
        await asyncio.gather(last.stored, waiting.pulled)
        for _ in kept_back:
            frame = await server.frame()
            assert (frame.HasField("rows"), len(ids_of(frame))) == (False, 30)
            await server.answer(Response(sequence=frame.sequence, rows=rows(*range(30)), done=True))
        for each in kept_back:
            await each.pulled


async def test_a_refusal_ends_its_frame_and_nothing_else() -> None:
    async with scripted_exchange() as (server, client):
        into = room(2)
        good, stale, voided = send(client, into, 1), send(client, into, 2, push=True), send(client, into, 3, push=True)
        sequences = [(await server.frame()).sequence for _ in range(3)]
        await server.answer(
            refusal(sequences[1], StaleVersion("row 2 is newer"), stored=True, newly_stored=1),
            refusal(sequences[2], FailedPrecondition("a gradient skips a version")),
            Response(sequence=sequences[0], rows=rows(4), done=True),
        )
        await good.pulled
        with pytest.raises(StaleVersion, match="row 2 is newer"):
            await stale.pulled
        assert (await stale.stored).new == 1
        for future in (voided.stored, voided.pulled):
            with pytest.raises(FailedPrecondition, match="skips a version"):
                await future
        assert server.streams == 1


async def test_what_is_not_answered_is_sent_again_on_the_next_stream_and_no_more() -> None:
    async with scripted_exchange(patience={Unavailable: 60.0}) as (server, client):
        into = [room(2) for _ in range(4)]
        frames = [send(client, into[at], 10 * at, 10 * at + 1, push=True) for at in range(4)]
        sequences = [(await server.frame()).sequence for _ in range(4)]
        await server.answer(
            Response(sequence=sequences[0], stored=True, rows=rows(1, 2), done=True),
            Response(sequence=sequences[1], stored=True, rows=rows(3)),
            Response(sequence=sequences[2], rows=rows(5, 6)),
        )
        await frames[1].stored
        await frames[2].pulled
        into[2][:] = -1  # in use by now
        await server.break_off(grpc.StatusCode.UNAVAILABLE)
        again = [await server.frame() for _ in range(3)]
        assert [frame.sequence for frame in again] == sequences[1:]
        assert [(frame.HasField("rows"), frame.HasField("pulls")) for frame in again] == [
            (False, True), (True, False), (True, True),
        ]  # fmt: skip
        await server.answer(
            Response(sequence=sequences[1], rows=rows(3, 4), done=True),
            Response(sequence=sequences[2], stored=True, done=True),
            Response(sequence=sequences[3], stored=True, rows=rows(7, 8), done=True),
        )
        for frame in frames:
            await frame.stored
            await frame.pulled
        assert [each[:, 0].tolist() for each in into] == [[1, 2], [3, 4], [-1, -1], [7, 8]]
        assert server.streams == 2


async def test_refusals_that_pass_are_repeated_within_the_patience_for_them() -> None:
    patience: dict[type[EsdError], float] = {Unavailable: 60.0, StorageUnwritable: 60.0}
    async with scripted_exchange(patience=patience) as (server, client):
        frame = send(client, room(1), 1, push=True)
        for error in (StorageUnwritable("the disk is full"), Unavailable("Redis restarts")):
            request = await server.frame()
            await server.answer(refusal(request.sequence, error))
        last = await server.frame()
        assert last.sequence > request.sequence
        await server.answer(Response(sequence=last.sequence, stored=True, rows=rows(1), done=True))
        await frame.stored
    async with scripted_exchange(patience={StorageUnwritable: 0.01}) as (server, client):
        frame = send(client, room(1), 1, push=True)
        await server.answer(refusal((await server.frame()).sequence, StorageUnwritable("the disk is full")))
        with pytest.raises(StorageUnwritable, match="disk is full"):
            await frame.stored


async def test_what_rests_outlives_its_stream() -> None:
    """A server without room is restarted with more: its refused frames wait for longer than their stream lasts."""
    patience: dict[type[EsdError], float] = {Unavailable: 60.0, StorageUnwritable: 60.0}
    async with scripted_exchange(patience=patience) as (server, client):
        frame = send(client, room(1), 1, push=True)
        request = await server.frame()
        await server.answer(refusal(request.sequence, StorageUnwritable("the disk is full")))
        await server.break_off(grpc.StatusCode.UNAVAILABLE)
        again = await server.frame()
        assert server.streams == 2
        await server.answer(Response(sequence=again.sequence, stored=True, rows=rows(1), done=True))
        await frame.stored


async def test_a_stream_that_must_not_be_opened_ends_what_waits_for_it() -> None:
    async with scripted_exchange(patience={Unavailable: 60.0}) as (server, client):
        frame = send(client, room(1), 1)
        await server.frame()
        await server.break_off(grpc.StatusCode.PERMISSION_DENIED, "a guest")
        with pytest.raises(PermissionDenied, match="a guest"):
            await frame.pulled


@pytest.mark.parametrize("silent", [False, True], ids=["no answer", "no credit"])
async def test_a_silent_server_is_unavailable(silent: bool) -> None:
    async with scripted_exchange(silence=0.2) as (server, client):
        server.silent = silent
        frame = send(client, room(1), 1)
        with pytest.raises(Unavailable, match=r"has not answered .* within 0\.25 s"):
            await frame.pulled


async def test_closing_leaves_nothing_behind() -> None:
    async with scripted_exchange(frames=1) as (server, client):
        frames = [send(client, room(1), at) for at in (1, 2)]
        await server.frame()
        await client.close()
        for frame in frames:
            with pytest.raises(Unavailable, match="was closed"):
                await frame.pulled
        with pytest.raises(Unavailable, match="is closed"):
            send(client, room(1), 3)
        await asyncio.wait_for(server.ended.acquire(), 60)
        assert not [task for task in asyncio.all_tasks() if "services/clients" in repr(task)]


async def test_who_gives_up_is_not_written_to_and_others_go_on() -> None:
    async with scripted_exchange(frames=1) as (server, client):
        into = room(1)
        waiting = asyncio.create_task(client.pull(*_columns(1), into, np.arange(1)))
        never_sent = asyncio.create_task(client.pull(*_columns(2), into, np.arange(1)))
        sequence = (await server.frame()).sequence
        for task in (waiting, never_sent):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        third = send(client, room(1), 3)
        await server.answer(Response(sequence=sequence, rows=rows(9), done=True))
        request = await server.frame()
        assert ids_of(request) == [3]
        await server.answer(Response(sequence=request.sequence, rows=rows(9), done=True))
        await third.pulled
        assert not into.any()


def _columns(*ids: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(ids, np.uint64), np.ones(len(ids), np.int64)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"rows": rows(1, 2, 3), "done": True}, "rows that are not asked for"),
        ({"rows": rows(1), "positions": np.array([2], np.uint32).tobytes()}, "rows that are not asked for"),
        ({"rows": rows(1, 1), "positions": np.array([1, 1], np.uint32).tobytes()}, "rows that are not asked for"),
        ({"rows": rows(1)[:-4]}, "whole rows"),
        ({"rows": rows(1), "positions": b"123"}, "whole rows"),
        ({"rows": rows(1), "stored": True, "done": True}, "a pull of 2 rows ended after 1"),
        ({"rows": rows(1, 2), "done": True}, "without storing"),
    ],
    ids=["too many", "a strange position", "a row twice", "half a row", "half a position", "too few", "no push"],
)
async def test_answers_that_do_not_fit_their_frame_are_not_believed(answer: dict[str, Any], text: str) -> None:
    async with scripted_exchange() as (server, client):
        lied_to, other = send(client, room(2), 1, 2, push=True), send(client, room(1), 3)
        sequences = [(await server.frame()).sequence for _ in range(2)]
        await server.answer(
            Response(sequence=sequences[0], **answer), Response(sequence=sequences[1], rows=rows(3), done=True)
        )
        await other.pulled
        with pytest.raises(Internal, match=text):
            await asyncio.gather(lied_to.stored, lied_to.pulled)


async def test_an_answer_to_nothing_ends_the_stream() -> None:
    async with scripted_exchange() as (server, client):
        frame = send(client, room(1), 1)
        await server.frame()
        await server.answer(Response(sequence=99, done=True))
        with pytest.raises(Internal, match="answers frame 99"):
            await frame.pulled


class SlowDownlink(Traffic):
    """Rows take some time; an answer of a few bytes passes at once."""

    def __init__(self) -> None:
        self.later = 0.0

    def down(self, size: int) -> float:
        if size > 100:
            self.later += 0.05
        return self.later


async def test_an_acknowledgement_does_not_wait_for_rows_that_are_still_arriving() -> None:
    async with scripted_exchange(traffic=SlowDownlink()) as (server, client):
        bulk = [send(client, room(1), at) for at in range(4)]
        (push,) = client.exchange(Parcel(push_of(9)))
        sequences = [(await server.frame()).sequence for _ in range(5)]
        await server.answer(
            *(Response(sequence=sequence, rows=rows(1), done=True) for sequence in sequences[:4]),
            Response(sequence=sequences[4], stored=True, newly_stored=1),
            Response(sequence=sequences[4], done=True),
        )
        await push.stored
        assert not any(frame.pulled.done() for frame in bulk[1:])
        for frame in bulk:
            await frame.pulled


async def test_a_frame_that_is_answered_to_the_end_twice_ends_the_stream_and_those_behind_it() -> None:
    """The second end is on its way with the first, behind rows that take their time."""
    async with scripted_exchange(traffic=SlowDownlink()) as (server, client):
        first, second = send(client, room(1), 1), send(client, room(1), 2)
        sequences = [(await server.frame()).sequence for _ in range(2)]
        ends = Response(sequence=sequences[0], rows=rows(1), done=True)
        await server.answer(ends, ends, Response(sequence=sequences[1], rows=rows(2), done=True))
        await first.pulled
        with pytest.raises(Internal, match=f"answers frame {sequences[0]}, which waits for no answer"):
            await asyncio.wait_for(second.pulled, 60)
