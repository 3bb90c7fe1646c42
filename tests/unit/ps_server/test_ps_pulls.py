"""Pulls over the memory store, without a network."""

import asyncio

import numpy as np
import pytest

from ps_server.core.shard import Shard
from ps_server.core.tables import Tables
from ps_server.service.arrivals import Arrivals
from ps_server.service.pulls import pull_blocks
from ps_server.service.store_pool import StorePool
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
def pool():
    pool = StorePool(1)
    yield pool
    pool.close()


async def pull(table, arrivals, pool, seconds):
    deadline = asyncio.get_running_loop().time() + seconds
    blocks = pull_blocks(table, arrivals, pool, IDS, ONES, epoch=0, rows_per_block=10, deadline=deadline)
    return [block async for block in blocks]


async def until_waits(pulling, arrivals):
    while not arrivals.waiting:  # nothing tells when it starts to; this lets it run
        assert not pulling.done(), await pulling
        await asyncio.sleep(0)


async def test_an_announcement_that_the_store_does_not_confirm_is_waited_out(table, pool):
    arrivals = Arrivals()
    waiting = asyncio.create_task(pull(table, arrivals, pool, 0.2))
    await until_waits(waiting, arrivals)
    arrivals.announce(IDS, ONES)  # as from a Redis that lost the write in a failover
    with pytest.raises(DeadlineExceeded, match="row 5 has not reached version 1"):
        await waiting
    assert arrivals.waiting == 0


async def test_announcements_in_pieces_end_the_wait(table, pool):
    arrivals = Arrivals()
    waiting = asyncio.create_task(pull(table, arrivals, pool, 10))
    await until_waits(waiting, arrivals)
    for row in (0, 1):
        part = slice(row, row + 1)
        table.push_rows(RowBlock(IDS[part], ONES[part], np.full((1, 2), row, np.float32)))
        arrivals.announce(IDS[part], ONES[part])
    (block,) = await waiting
    assert block.rows[:, 0].tolist() == [0, 1]
