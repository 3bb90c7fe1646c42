"""Pulls over the memory store, without a network, and which announcements end their wait."""

import asyncio

import numpy as np
import pytest

from ps_server.core.shard import Shard
from ps_server.core.tables import Tables
from ps_server.service.pulls import pull_blocks
from ps_server.service.store_access import StoreThreads
from ps_server.service.waiting import WaitingPull, WaitingPulls
from ps_server.stores.memory import MemoryStore
from services.domain.errors import DeadlineExceeded
from services.domain.rows import RowBlock
from services.domain.tables import OptimizerSpec, TableSpec

SPEC = TableSpec("t", 2, OptimizerSpec(), seed=1, init_scale=1)
IDS = np.array([5, 6], np.uint64)
ONES = np.ones(2, np.int64)


@pytest.fixture
def table():
    tables = Tables(MemoryStore(), Shard())
    tables.create(SPEC)
    return tables.get("t")


@pytest.fixture
def threads():
    threads = StoreThreads(1)
    yield threads
    threads.close()


async def pull(table, waiting, threads, seconds):
    deadline = asyncio.get_running_loop().time() + seconds
    blocks = pull_blocks(table, waiting, threads, IDS, ONES, epoch=0, rows_per_block=10, deadline=deadline)
    return [block async for block in blocks]


async def until_waits(pulling, waiting):
    while not waiting.count:  # nothing tells when it starts to; this lets it run
        assert not pulling.done(), await pulling
        await asyncio.sleep(0)


async def test_an_announcement_that_the_store_does_not_confirm_is_waited_out(table, threads):
    waiting = WaitingPulls()
    pulling = asyncio.create_task(pull(table, waiting, threads, 0.2))
    await until_waits(pulling, waiting)
    waiting.announce(IDS, ONES)  # as from a Redis that lost the write in a failover
    with pytest.raises(DeadlineExceeded, match="row 5 has not reached version 1"):
        await pulling
    assert waiting.count == 0


async def test_announcements_in_pieces_end_the_wait(table, threads):
    waiting = WaitingPulls()
    pulling = asyncio.create_task(pull(table, waiting, threads, 10))
    await until_waits(pulling, waiting)
    for row in (0, 1):
        part = slice(row, row + 1)
        table.push_rows(RowBlock(IDS[part], ONES[part], np.full((1, 2), row, np.float32)))
        waiting.announce(IDS[part], ONES[part])
    (block,) = await pulling
    assert block.rows[:, 0].tolist() == [0, 1]


def u64(*values):
    return np.array(values, np.uint64)


def i64(*values):
    return np.array(values, np.int64)


def waiting_pull(ids, wanted):
    pull = WaitingPull(ids, wanted, lambda: None)
    pull.expect(np.ones(len(ids), np.bool_))
    return pull


def test_the_wait_ends_when_every_expected_row_was_found_or_announced():
    pull = waiting_pull(u64(30, 10, 20), i64(3, 1, 2))
    pull.found(np.array([False, True, False]))
    pull.announce(u64(20, 99), i64(2, 1))
    assert not pull.complete
    assert pull.first_missing() == 0
    pull.announce(u64(1, 30), i64(7, 3))
    assert pull.complete
    assert pull.first_missing() is None


def test_older_versions_and_other_rows_do_not_count():
    pull = waiting_pull(u64(5, 2**64 - 1), i64(4, 4))
    pull.announce(u64(5), i64(3))
    pull.announce(u64(6, 0), i64(4, 4))
    pull.announce(u64(2**64 - 1), i64(4))
    assert pull.first_missing() == 0


def test_a_newer_version_ends_the_wait_too():
    pull = waiting_pull(u64(5), i64(4))
    pull.announce(u64(5), i64(9))
    assert pull.complete


def test_an_announcement_during_the_read_is_remembered():
    pull = waiting_pull(u64(1, 2), i64(1, 1))
    pull.announce(u64(1), i64(1))
    pull.found(np.array([False, True]))
    assert pull.complete


def test_a_row_that_is_read_again_must_be_announced_again():
    pull = waiting_pull(u64(1, 2), i64(1, 1))
    pull.announce(u64(1, 2), i64(1, 1))
    pull.expect(np.array([True, False]))
    assert pull.first_missing() == 0
    pull.announce(u64(1), i64(1))
    assert pull.complete
