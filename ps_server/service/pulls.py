"""Answers a pull: rows in request order, each at exactly the version that the pull names.

A row that is not there yet is waited for (ps_server/service/waiting.py), then read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
from numpy.typing import NDArray

from ps_server.core.table import Table
from ps_server.service.store_access import StoreThreads
from ps_server.service.waiting import WaitingPull, WaitingPulls, behind
from services.domain.rows import RowBlock
from services.runtime import metrics

Read = Callable[[NDArray[np.uint64], NDArray[np.int64]], RowBlock]


async def pull_blocks(
    table: Table,
    waiting: WaitingPulls,
    threads: StoreThreads,
    ids: NDArray[np.uint64],
    wanted: NDArray[np.int64],
    *,
    epoch: int,
    rows_per_block: int,
    deadline: float,
) -> AsyncIterator[RowBlock]:
    """Yields the rows block by block, waiting for versions that are not there yet.

    Args:
        table: where the rows are.
        waiting: the waiting pulls of that table.
        threads: read the store.
        ids: uint64 [r], distinct.
        wanted: int64 [r], the version that each row must have.
        epoch: of the plan that asks.
        rows_per_block: rows of one block, the last one may have fewer.
        deadline: time of the event loop's clock.

    Raises:
        InvalidArgument: these are not distinct ids of this shard, with a possible version each.
        StaleEpoch: the epoch is not the table's.
        StaleVersion: a row is newer than wanted.
        DeadlineExceeded: a row has not reached the wanted version in time.
    """

    def check_and_read(first_ids: NDArray[np.uint64], first_wanted: NDArray[np.int64]) -> RowBlock:
        table.check_pull(ids, wanted, epoch)
        return table.read(first_ids, first_wanted)

    if not len(ids):
        await threads.read(table.check_pull, ids, wanted, epoch)
    read: Read = check_and_read  # in one go: every trip to the store's threads and back takes its time
    for start in range(0, len(ids), rows_per_block):
        part = slice(start, start + rows_per_block)
        yield await _block_at(table, waiting, threads, ids[part], wanted[part], deadline, read)
        read = table.read


async def _block_at(
    table: Table,
    waiting: WaitingPulls,
    threads: StoreThreads,
    ids: NDArray[np.uint64],
    wanted: NDArray[np.int64],
    deadline: float,
    read: Read,
) -> RowBlock:
    """Returns one block of a pull, read again as often as rows are behind."""
    woken = asyncio.Event()
    pull = WaitingPull(ids, wanted, woken.set)
    waiting.join(pull)
    try:
        lagging = np.ones(len(ids), np.bool_)
        pull.expect(lagging)
        block = await threads.read(read, ids, wanted)
        while (lagging := behind(ids, block.versions, wanted)).any():
            pull.found(~lagging)
            with metrics.WAITING_PULLS.labels(table.spec.name).track_inprogress():
                waiting.wait(pull, deadline)
                while pull.refusal is None and not pull.complete:
                    woken.clear()
                    await woken.wait()
                pull.deadline = None
            if pull.refusal is not None:
                raise type(pull.refusal)(str(pull.refusal))
            pull.expect(lagging)
            fresh = await threads.read(table.read, ids[lagging], wanted[lagging])
            block.versions[lagging] = fresh.versions
            block.rows[lagging] = fresh.rows
        return block
    finally:
        waiting.leave(pull)
