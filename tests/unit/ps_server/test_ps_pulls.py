"""The pulls of a frame, without a network: over rows in memory, and over a store whose reads take their time."""

import asyncio

import numpy as np
import pytest

from esd.native.rows import ExactPulls
from esd.protos import ps_pb2
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.frame_pulls import FramePulls
from esd.ps_server.service.store_access import StoreThreads
from esd.ps_server.service.waiting import WaitingPulls
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.errors import DeadlineExceeded, FailedPrecondition, StaleVersion
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec

SPEC = TableSpec("t", 2, OptimizerSpec(), seed=1, init_scale=1)
IDS = np.array([5, 6], np.uint64)
ONES = np.ones(2, np.int64)


@pytest.fixture(params=["at once", "in threads"])
def table(request):
    tables = Tables(MemoryStore(), Shard())
    tables.create(SPEC)
    table = tables.get("t")
    if request.param == "in threads":
        table.frames = None
    return table


@pytest.fixture
def threads():
    threads = StoreThreads(1)
    yield threads
    threads.close()


class Puller:
    """The pulls of a frame, and the consumer of their answers."""

    def __init__(self, table, threads, ids=IDS, wanted=ONES, seconds=60, epoch=0):
        self.table = table
        self.waiting = WaitingPulls("t")
        self.rows = {}
        self._woken = asyncio.Event()
        deadline = asyncio.get_running_loop().time() + seconds
        self._pulls = FramePulls(
            table, self.waiting, ExactPulls(ids, wanted), 1, epoch, deadline, SPEC.row_bytes, self._woken.set
        )
        self._threads = threads
        self._ids = ids

    async def pull(self):
        """Takes answers until all rows are there: id -> values."""
        cursor = 0
        try:
            while not self._pulls.done:
                self._woken.clear()
                if not self._pulls.ready:
                    await self._woken.wait()
                    continue
                message = ps_pb2.ExchangeResponse.FromString(await self._pulls.go_on(self._threads) or b"")
                block = np.frombuffer(message.rows, np.float32).reshape(-1, 2)
                at = np.frombuffer(message.positions, np.uint32)
                at = at if len(at) else range(cursor, cursor + len(block))
                cursor = at[-1] + 1 if len(at) else cursor
                self.rows |= dict(zip(self._ids[list(at)].tolist(), block.tolist(), strict=True))
        finally:
            self._pulls.close()
        return self.rows

    def push(self, ids, version, value):
        ids = np.array(ids, np.uint64)
        self.table.push_rows(RowBlock(ids, np.full(len(ids), version), np.full((len(ids), 2), value, np.float32)))

    def announce(self, ids, version):
        self.waiting.announce(np.array(ids, np.uint64), np.full(len(ids), version))

    async def until_waits(self):
        while not self.waiting.count:  # noqa: ASYNC110 - nothing tells when it starts to; this lets it run
            await asyncio.sleep(0)


async def test_announcements_in_pieces_end_the_wait(table, threads):
    puller = Puller(table, threads)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    for row in (5, 6):
        assert puller.waiting.count == 1
        puller.push([row], 1, row)
        puller.announce([row], 1)
    assert await pulling == {5: [5, 5], 6: [6, 6]}
    assert puller.waiting.count == len(puller.waiting.rows) == 0


async def test_an_announcement_that_the_store_does_not_confirm_is_waited_out(table, threads):
    puller = Puller(table, threads, seconds=0.2)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    puller.announce(IDS, 1)  # as from a Redis that lost the write in a failover
    with pytest.raises(DeadlineExceeded, match="row 5 has not reached version 1"):
        await pulling
    assert puller.waiting.count == len(puller.waiting.rows) == 0


async def test_what_is_announced_while_it_is_read_is_not_missed(table, threads):
    read = table.read_exact

    def read_then_store(ids, wanted):
        block = read(ids, wanted)
        table.read_exact = read
        puller.push(IDS, 1, 3)
        loop.call_soon_threadsafe(puller.announce, IDS, 1)
        return block

    loop = asyncio.get_running_loop()
    puller = Puller(table, threads, seconds=60)
    if table.frames is None:
        table.read_exact = read_then_store
    else:
        loop.call_soon(lambda: (puller.push(IDS, 1, 3), puller.announce(IDS, 1)))
    async with asyncio.timeout(60):
        assert await puller.pull() == {5: [3, 3], 6: [3, 3]}


async def test_older_versions_and_other_rows_wake_nobody(table, threads):
    puller = Puller(table, threads, wanted=4 * ONES)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    puller.announce(IDS, 3)
    puller.announce([0, 7, 2**64 - 1], 9)
    assert puller.waiting.count == 1
    puller.push(IDS, 4, 1)
    puller.announce(IDS, 4)
    await pulling


async def test_a_row_that_is_overtaken_is_stale(table, threads):
    puller = Puller(table, threads)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    puller.push(IDS, 2, 1)
    puller.announce(IDS, 2)
    with pytest.raises(StaleVersion, match="row 5 is at version 2, the pull wants the older version 1"):
        await pulling


async def test_waiting_pulls_are_told_that_nothing_will_come(table, threads):
    puller = Puller(table, threads)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    puller.waiting.refuse(FailedPrecondition("taken over"))
    with pytest.raises(FailedPrecondition, match="taken over"):
        await pulling


async def test_pulls_of_the_present_epoch_wait_on_when_those_before_are_told(table, threads):
    puller = Puller(table, threads, epoch=3)
    pulling = asyncio.create_task(puller.pull())
    await puller.until_waits()
    puller.waiting.refuse(FailedPrecondition("over"), before=3)
    puller.push(IDS, 1, 7)
    puller.announce(IDS, 1)
    assert await pulling == {5: [7, 7], 6: [7, 7]}
