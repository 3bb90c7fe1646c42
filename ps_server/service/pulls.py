"""Answers a pull: rows in request order, each at exactly the version that the pull names.

A row that is not there yet is waited for (ps_server/service/waiting.py), then read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
from numpy.typing import NDArray

from esd_native.rows import ExactPulls
from protos import ps_pb2
from ps_server.core.table import Table
from ps_server.service.frame_pulls import FramePulls
from ps_server.service.store_access import StoreThreads
from ps_server.service.waiting import WaitingPulls
from services.domain.rows import RowBlock
from services.wire.exchange import answered_positions


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
    await threads.read(table.check_pull, ids, wanted, epoch)
    for start in range(0, len(ids), rows_per_block):
        part = slice(start, start + rows_per_block)
        yield await _block_at(table, waiting, threads, ids[part], wanted[part], deadline)


async def _block_at(
    table: Table,
    waiting: WaitingPulls,
    threads: StoreThreads,
    ids: NDArray[np.uint64],
    wanted: NDArray[np.int64],
    deadline: float,
) -> RowBlock:
    """Returns one block of a pull, read again as often as rows are behind."""
    woken = asyncio.Event()
    pulls = FramePulls(table, waiting, ExactPulls(ids, wanted), 1, deadline, woken.set)
    rows = np.empty((len(ids), table.spec.row_width), np.float32)
    cursor = 0
    try:
        while not pulls.done:
            woken.clear()
            if not pulls.ready:
                await woken.wait()
                continue
            message = await pulls.go_on(threads)
            if message is not None:
                answer = ps_pb2.ExchangeResponse.FromString(message)
                at = answered_positions(answer, table.spec, cursor, len(ids))
                rows[at] = np.frombuffer(answer.rows, np.float32).reshape(-1, table.spec.row_width)
                cursor = int(at[-1]) + 1 if len(at) else cursor
        return RowBlock(ids, wanted, rows)
    finally:
        pulls.close()
