"""Rows that one worker sends straight to another, over real streams."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from esd.services.clients.frame import Frame
from esd.services.domain.errors import (
    DeadlineExceeded,
    EsdError,
    FailedPrecondition,
    InvalidArgument,
    StaleEpoch,
    Unavailable,
)
from esd.services.domain.plans import Membership
from esd.services.domain.worker_set import WorkerSet
from esd.services.wire.exchange import Stored
from esd.worker.service import deliveries
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link
from esd.worker.service.peers import Peers
from esd.worker.service.settings import WorkerSettings
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.peers import (
    CLIPPED,
    EPOCH,
    SLOT,
    TABLES,
    expect,
    floats_of,
    receiving,
    send,
    sending,
    worker_service,
)


async def taken(frames: list[Frame]) -> Stored:
    """The state of all frames together."""
    each = await asyncio.wait_for(asyncio.gather(*(frame.stored for frame in frames)), 60)
    return Stored(sum(one.new for one in each), sum(one.already_known for one in each))


async def test_rows_come_to_their_places_in_the_order_of_the_plan() -> None:
    async with receiving() as (inbox, address), sending(address) as client:
        waiting = await expect(inbox, 5, ([8, 3, 2**60, 5], 7), ([9, 1], 2))
        sent = send(client, 5, [3, 2**60], 7) + send(client, 5, [1, 9], 2, spec=CLIPPED)
        assert await taken(sent) == Stored(4, 0)
        assert waiting.arrival.missing == 2
        sent += send(client, 5, [5, 8], 7)
        await waiting.arrival.complete()
        np.testing.assert_array_equal(waiting.staging[0], floats_of([8, 3, 2**60, 5], 7))
        np.testing.assert_array_equal(waiting.staging[1], floats_of([9, 1], 2, CLIPPED.row_width))
        await taken(sent)
        assert waiting.arrival.bytes == sum(frame.push_bytes for frame in sent)


async def test_rows_that_come_before_their_plan_wait_for_it() -> None:
    async with receiving() as (inbox, address), sending(address) as client:
        sent = send(client, 2, [4, 6], 1)
        waiting = await expect(inbox, 1, ([1], 1))
        sent_now = send(client, 1, [1], 1)
        later = await expect(inbox, 2, ([6, 4], 1))
        assert await taken(sent + sent_now) == Stored(3, 0)
        await waiting.arrival.complete()
        await later.arrival.complete()
        np.testing.assert_array_equal(later.staging[0], floats_of([6, 4], 1))


async def test_many_rows_travel_in_messages_that_a_slow_link_takes_at_once() -> None:
    ids = np.arange(1, 2001, dtype=np.uint64)
    link = Link(4e6, shape=True)
    async with receiving(link=link) as (inbox, address), sending(address, traffic=Link(2e6, shape=True)) as client:
        waiting = await expect(inbox, 1, (ids, 3))
        sent = send(client, 1, ids, 3)
        assert len(sent) > 3
        assert max(frame.push_bytes for frame in sent) < 1.1 * 0.05 * 2e6
        await waiting.arrival.complete()
        np.testing.assert_array_equal(waiting.staging[0], floats_of(ids, 3))


async def test_rows_that_are_sent_again_are_not_written_again() -> None:
    async with receiving() as (inbox, address), sending(address) as client:
        waiting = await expect(inbox, 1, ([1, 2], 1))
        assert await taken(send(client, 1, [1], 1)) == Stored(1, 0)
        waiting.staging[0][0] = -1  # in use by now
        assert await taken(send(client, 1, [1], 1)) == Stored(0, 1)
        assert await taken(send(client, 1, [1, 2], 1)) == Stored(1, 1)
        assert await taken(send(client, 1, [1, 2], 1)) == Stored(0, 2)
        for iteration in range(2, 10):
            await expect(inbox, iteration)
        assert await taken(send(client, 1, [1, 2], 1)) == Stored(0, 2)
        assert (waiting.staging[0][0] == -1).all()
        np.testing.assert_array_equal(waiting.staging[0][1:], floats_of([2], 1))


NAN = np.full((1, 48), np.nan, np.float32)
REFUSED: dict[str, tuple[dict[str, Any], type[EsdError], str]] = {
    "another row": ({"ids": [4], "version": 1}, FailedPrecondition, "iteration 1: row 4 at version 1 is not expected"),
    "beyond all rows": ({"ids": [2**63], "version": 1}, FailedPrecondition, f"row {2**63} at version 1 is not"),
    "an older version": ({"ids": [2], "version": 4}, FailedPrecondition, "row 2 at version 4 is not expected"),
    "another table": ({"ids": [2], "version": 5, "spec": CLIPPED}, FailedPrecondition, "row 2 at version 5 is not"),
    "not finite": ({"ids": [2], "version": 5, "values": NAN}, InvalidArgument, "row 2 holds NaN or infinity"),
    "twice": ({"ids": [2, 2], "version": 5}, InvalidArgument, "row 2 is named twice"),
    "an epoch that is over": ({"ids": [2], "version": 5, "epoch": 2}, StaleEpoch, "of epoch 2, this worker is in"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_the_plan_does_not_say_is_refused_and_changes_nothing(case: str) -> None:
    rows, kind, text = REFUSED[case]
    async with receiving() as (inbox, address), sending(address) as client:
        waiting = await expect(inbox, 1, ([2, 3], 5))
        with pytest.raises(kind, match=text):
            await taken(send(client, 1, **rows))
        assert np.isnan(waiting.staging[0]).all()
        assert await taken(send(client, 1, [2, 3], 5)) == Stored(2, 0), "the stream goes on"


async def test_a_table_that_the_job_does_not_have_is_refused() -> None:
    async with receiving(tables=(CLIPPED,)) as (inbox, address), sending(address) as client:
        await expect(inbox, 1, ([2], 5))
        with pytest.raises(InvalidArgument, match="the job has no table 't'"):
            await taken(send(client, 1, [2], 5))


async def test_rows_that_no_plan_expects_are_refused() -> None:
    async with receiving() as (inbox, address), sending(address) as client:
        await expect(inbox, 1)
        with pytest.raises(FailedPrecondition, match="iteration 1: no rows are expected from other workers"):
            await taken(send(client, 1, [2], 5))


async def test_a_plan_that_does_not_come_is_named() -> None:
    async with receiving(within=0.2) as (_, address), sending(address) as client:
        with pytest.raises(DeadlineExceeded, match=r"the plan of iteration 4 did not come within 0\.2 s"):
            await taken(send(client, 4, [2], 5))


async def test_rows_that_do_not_come_are_counted() -> None:
    async with receiving(within=0.2) as (inbox, _):
        waiting = await expect(inbox, 4, ([2, 5, 9], 5))
        with pytest.raises(DeadlineExceeded, match=r"3 rows of iteration 4 did not come .*ESD_WORKER_PEER_TIMEOUT"):
            await waiting.arrival.complete()


async def test_rows_for_an_epoch_that_begins_later_are_sent_again() -> None:
    async with worker_service() as (service, address), sending(address) as client:
        service.deliveries.begin(Inbox(EPOCH - 1, SLOT, 1, TABLES, 60), Link(1e9, shape=False))
        (frame,) = send(client, 1, [2], 5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(frame.stored), 0.2)
        inbox = Inbox(EPOCH, SLOT, 1, TABLES, 60)
        service.deliveries.begin(inbox, Link(1e9, shape=False))
        waiting = await expect(inbox, 1, ([2], 5))
        assert await taken([frame]) == Stored(1, 0)
        await waiting.arrival.complete()


async def test_frames_that_wait_have_a_budget_over_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two frames finds room and waits for its plan; the other one is refused, and may be sent again."""
    async with (
        receiving() as (inbox, address),
        sending(address, patience=0) as one,
        sending(address, patience=0) as two,
    ):
        monkeypatch.setattr(deliveries, "_WAITING_BYTES", 300)
        (first,), (second,) = send(one, 2, [4], 1), send(two, 2, [6], 1)
        assert 150 < first.push_bytes == second.push_bytes <= 300
        done, (waits,) = await asyncio.wait(
            [asyncio.ensure_future(frame.stored) for frame in (first, second)], return_when=asyncio.FIRST_COMPLETED
        )
        (refused,) = done
        with pytest.raises(Unavailable, match=r"\d+ bytes of rows wait at worker .*, and at most \d+ may"):
            refused.result()
        await expect(inbox, 1)
        await expect(inbox, 2, ([4, 6], 1))
        assert await asyncio.wait_for(waits, 60) == Stored(1, 0)

        monkeypatch.undo()
        async with sending(address) as again:
            assert await taken(send(again, 2, [4, 6], 1)) == Stored(1, 1)


async def test_an_epoch_that_ends_refuses_what_waits() -> None:
    async with receiving() as (inbox, address), sending(address, patience=0) as client:
        waits = send(client, 2, [2], 6)
        await expect(inbox, 1)
        await inbox.close()
        with pytest.raises(Unavailable, match="epoch 3 is over"):
            await taken(waits)


async def test_streams_that_are_cut_anywhere_bring_each_row_once() -> None:
    rng = np.random.default_rng(6)
    async with (
        receiving() as (inbox, address),
        CuttableProxy.running(address) as proxy,
        sending(proxy.address, patience=60) as client,
    ):
        iteration = 0
        while proxy.cuts < 60:
            iteration += 1
            proxy.cut_after(int(rng.integers(1, 9000)))
            ids = rng.permutation(40)[:30].astype(np.uint64)
            first = send(client, iteration, ids[:10], iteration)
            waiting = await expect(inbox, iteration, (rng.permutation(ids), iteration))
            rest = send(client, iteration, ids[10:], iteration, urgent=True)
            async with asyncio.timeout(60):
                await waiting.arrival.complete()
            stored = await taken(first + rest)
            assert stored.new + stored.already_known == len(ids)
            proxy.cut_after(None)
            order = np.array([row[0] for row in waiting.staging[0]])
            expected = np.array([row[0] for row in floats_of(ids, iteration)])
            np.testing.assert_array_equal(np.sort(order), np.sort(expected))


def membership(address: str, iteration: int = 0) -> Membership:
    job: Any = SimpleNamespace(first_iteration=0)
    return Membership(EPOCH, 0, job, WorkerSet.all_of(2), iteration, peers=("", address))


def peers_of(membership: Membership) -> Peers:
    settings = WorkerSettings(
        name="w0", dispatcher="127.0.0.1:1", link=1e9, cache_rows=8, peer_timeout=0.05, retry_timeout=1
    )
    return Peers(membership, Inbox(EPOCH, 0, 0, (), 1), Link(1e9, shape=False), settings)


async def test_workers_meet_before_they_train() -> None:
    async with receiving() as (_, address):
        peers = peers_of(membership(address))
        await peers.meet()
        await peers.aclose()


@pytest.mark.parametrize(("iteration", "kind"), [(0, FailedPrecondition), (20, Unavailable)])
async def test_a_peer_that_is_out_of_reach_is_named(iteration: int, kind: type[EsdError]) -> None:
    """Nothing has been trained: the job ends. Otherwise the network may come back, and another epoch begins."""
    peers = peers_of(membership("127.0.0.1:1", iteration))
    with pytest.raises(kind, match=r"worker w0 cannot reach the worker in slot 1 at 127\.0\.0\.1:1, .*--direct"):
        await peers.meet()
    await peers.aclose()


async def test_a_worker_that_is_not_the_one_that_is_expected_is_named() -> None:
    async with worker_service() as (service, address):
        service.deliveries.begin(Inbox(EPOCH, 2, 0, (), 1), Link(1e9, shape=False))
        peers = peers_of(membership(address))
        with pytest.raises(FailedPrecondition, match=r"cannot reach the worker in slot 1 .*worker w1 answers.*slot 2"):
            await peers.meet()
        service.deliveries.begin(Inbox(EPOCH + 1, 1, 0, (), 1), Link(1e9, shape=False))
        with pytest.raises(StaleEpoch, match="epoch 3 is over"):
            await peers.meet()
        service.deliveries.end()
        with pytest.raises(FailedPrecondition, match="worker w1 is not in epoch 3 yet"):
            await peers.meet()
        await peers.aclose()


async def test_rows_for_nobody_are_refused() -> None:
    peers = peers_of(membership(""))
    rows: Any = None
    with pytest.raises(FailedPrecondition, match="iteration 4 has rows for the worker in slot 1, which is no peer"):
        peers.deliver(1, CLIPPED, rows, 4, urgent=False)
    await peers.aclose()
