"""Answers a pull: rows in request order, each at exactly the version that the pull names.

A row that is not there yet is waited for. A waiting pull holds no thread: it sleeps on the event loop until pushes have
announced all rows that it lacks, then reads those again. The store's threads hand announcements to the event loop, so
there are no locks here.

    WaitingPulls.announce  <- Push, for what it has stored
    pull_blocks            -> a WaitingPull per block: expect, read, found, wait, until nothing is behind
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ps_server.core.table import Table
from ps_server.service.store_access import StoreThreads
from services.domain.errors import DeadlineExceeded, FailedPrecondition, StaleVersion
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
    with waiting.joined(ids, wanted) as pull:
        lagging = np.ones(len(ids), np.bool_)
        pull.expect(lagging)
        block = await threads.read(read, ids, wanted)
        while (lagging := behind(ids, block.versions, wanted)).any():
            pull.found(~lagging)
            with metrics.WAITING_PULLS.labels(table.spec.name).track_inprogress():
                await pull.wait(deadline)
            pull.expect(lagging)
            fresh = await threads.read(table.read, ids[lagging], wanted[lagging])
            block.versions[lagging] = fresh.versions
            block.rows[lagging] = fresh.rows
        return block


def behind(ids: NDArray[np.uint64], have: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tells which rows have not reached the wanted version yet, bool [r].

    Raises:
        StaleVersion: a row is newer than wanted, so whoever asks follows an outdated plan.
    """
    ahead = have > wanted
    if ahead.any():
        at = int(np.argmax(ahead))
        raise StaleVersion(f"row {ids[at]} is at version {have[at]}, the pull wants the older version {wanted[at]}")
    return have < wanted


class WaitingPulls:
    """The pulls of one table that may have to wait, which every push to the table tells of what it has stored."""

    def __init__(self) -> None:
        self._pulls: set[WaitingPull] = set()

    @property
    def count(self) -> int:
        """How many pulls wait now."""
        return sum(pull.waits for pull in self._pulls)

    @contextmanager
    def joined(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> Iterator[WaitingPull]:
        """Lets a pull hear of every announcement while the block runs."""
        pull = WaitingPull(ids, wanted)
        self._pulls.add(pull)
        try:
            yield pull
        finally:
            self._pulls.remove(pull)

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Wakes the pulls that can go on now that rows `ids`, uint64 [r], can be read at `versions`, int64 [r]."""
        for pull in self._pulls:
            pull.announce(ids, versions)

    def refuse(self, reason: FailedPrecondition) -> None:
        """Ends the pulls that wait with this error."""
        for pull in self._pulls:
            pull.refuse(reason)


class WaitingPull:
    """The rows that one pull waits for, and which of them have been announced since it began to read them.

    Attributes:
        waits: whether it waits now.
    """

    def __init__(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> None:
        self.waits = False
        self._ids = ids
        self._wanted = wanted
        self._order = np.argsort(ids)
        self._sorted_ids = ids[self._order]
        self._missing = np.zeros(len(ids), np.bool_)
        self._refusal: FailedPrecondition | None = None
        self._complete = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether every expected row was found or announced, so that reading again makes sense."""
        return not self._missing.any()

    def expect(self, rows: NDArray[np.bool_]) -> None:
        """Says that these rows, bool [r], are read now; announcements count from here on, so none is missed."""
        self._missing = rows.copy()

    def found(self, rows: NDArray[np.bool_]) -> None:
        """Says that these rows, bool [r], were read at the wanted version."""
        self._missing &= ~rows

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Says that rows `ids` can be read at `versions` or newer."""
        at = np.searchsorted(self._sorted_ids, ids)
        at[at == len(self._sorted_ids)] = 0
        known = self._sorted_ids[at] == ids
        rows = self._order[at[known]]
        self._missing[rows[versions[known] >= self._wanted[rows]]] = False
        if self.complete:
            self._complete.set()

    def refuse(self, reason: FailedPrecondition) -> None:
        """Ends the waiting with this error."""
        self._refusal = reason
        self._complete.set()

    def first_missing(self) -> int | None:
        """Returns the position of a row that is still waited for; None if there is none."""
        return None if self.complete else int(np.argmax(self._missing))

    async def wait(self, deadline: float) -> None:
        """Returns when every expected row was found or announced.

        Args:
            deadline: time of the event loop's clock.

        Raises:
            DeadlineExceeded: names a row that is still missing.
            FailedPrecondition: the waiting was refused.
        """
        self.waits = True
        try:
            async with asyncio.timeout_at(deadline):
                while not self.complete:
                    if self._refusal is not None:
                        raise FailedPrecondition(str(self._refusal))
                    self._complete.clear()
                    await self._complete.wait()
        except TimeoutError:
            at = self.first_missing() or 0
            raise DeadlineExceeded(
                f"row {self._ids[at]} has not reached version {self._wanted[at]} in time: its owner has not pushed it"
            ) from None
        finally:
            self.waits = False
