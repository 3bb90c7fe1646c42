"""Where the rows arrive that other workers send straight to this one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import DeadlineExceeded, FailedPrecondition, StaleEpoch, Unavailable
from esd.services.domain.plans import Transfers
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.wire.deliveries import Delivery
from esd.services.wire.exchange import Stored

_KEPT = 4  # iterations whose rows are compared with the plan


class ExpectedRows:
    """The rows of one table that a plan has others send here, on their way to their places.

    Args:
        rows: of the plan.
        staging: float32 [.., W], where they go.
        places: int64 [r], the row of `staging` for each.

    Attributes:
        missing: how many have not come.
    """

    def __init__(self, rows: Transfers, staging: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        self.missing = len(rows)
        order = np.argsort(rows.ids)
        self._places = places[order]
        # One more than there are: what no place is found for is compared with a version that there is not.
        self._ids = np.append(rows.ids[order], np.uint64(0))
        self._versions = np.append(rows.versions[order], -1)
        self._staging = staging
        self._arrived = np.zeros(len(rows), np.bool_)

    def take(self, block: RowBlock) -> int:
        """Puts rows in their places, and returns how many have not come before: the others are left alone.

        Raises:
            FailedPrecondition: a row is not expected, or at another version; none is put in its place.
        """
        at = np.searchsorted(self._ids[:-1], block.ids)
        expected = (self._ids[at] == block.ids) & (self._versions[at] == block.versions)
        if not expected.all():
            wrong = int(np.argmin(expected))
            raise FailedPrecondition(
                f"row {block.ids[wrong]} at version {block.versions[wrong]} is not expected from another worker"
            )
        new = ~self._arrived[at]
        self._staging[self._places[at[new]]] = block.rows[new]
        self._arrived[at[new]] = True
        count = int(np.count_nonzero(new))
        self.missing -= count
        if not self.missing:  # what comes again is left alone, and the iteration may do with the rows what it likes
            self._staging = np.empty((0, self._staging.shape[1]), np.float32)
        return count


class Arrival:
    """What one iteration waits for from other workers.

    Args:
        iteration: its number.
        tables: the rows of each table, by number; empty if there are none.
        within: seconds to wait for them.

    Attributes:
        bytes: of the messages that have brought rows.
    """

    def __init__(self, iteration: int, tables: Sequence[ExpectedRows], within: float) -> None:
        self.bytes = 0
        self._within = within
        self._iteration = iteration
        self._tables = tables
        self._complete = asyncio.Event()
        if not self.missing:
            self._complete.set()

    @property
    def missing(self) -> int:
        """How many rows have not come."""
        return sum(rows.missing for rows in self._tables)

    def take(self, delivery: Delivery, size: int) -> Stored:
        """Takes rows, which came in a message of `size` bytes.

        Raises:
            FailedPrecondition: they are not those that the iteration waits for.
        """
        if not self._tables:
            raise FailedPrecondition(f"iteration {self._iteration}: no rows are expected from other workers")
        try:
            new = self._tables[delivery.table].take(delivery.rows)
        except FailedPrecondition as error:
            raise FailedPrecondition(f"iteration {self._iteration}: {error}") from None
        self.bytes += size if new else 0
        if not self.missing:
            self._complete.set()
        return Stored(new, len(delivery.rows) - new)

    async def complete(self) -> None:
        """Returns when all rows are in their places.

        Raises:
            DeadlineExceeded: some have not come in time.
        """
        try:
            async with asyncio.timeout(self._within):
                await self._complete.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self.missing} rows of iteration {self._iteration} did not come from other workers within "
                f"{self._within:g} s (ESD_WORKER_PEER_TIMEOUT)"
            ) from None


class Inbox:
    """Takes the rows that come from other workers in one epoch.

    Plans and rows come over different streams, in any order: rows whose plan is not there yet wait, with the stream
    that has brought them. Of an iteration that is long over, all rows are repeated ones.

    Args:
        epoch: of the membership.
        slot: of this worker.
        first_iteration: of the epoch.
        tables: of the job, by number.
        within: seconds that rows may wait for their plan, and an iteration for its rows.
    """

    def __init__(self, epoch: int, slot: int, first_iteration: int, tables: Sequence[TableSpec], within: float) -> None:
        self.epoch = epoch
        self.slot = slot
        self.tables = tables
        self._within = within
        self._next_iteration = first_iteration
        self._arrivals: dict[int, Arrival] = {}
        self._changed = asyncio.Condition()
        self._closed = False

    async def expect(self, iteration: int, tables: Sequence[ExpectedRows]) -> Arrival:
        """Lets the rows of the next iteration come, and returns what tells of it."""
        arrival = Arrival(iteration, tables, self._within)
        async with self._changed:
            self._next_iteration = iteration + 1
            self._arrivals[iteration] = arrival
            self._arrivals.pop(iteration - _KEPT, None)  # it is complete, or this one would not begin
            self._changed.notify_all()
        return arrival

    async def take(self, delivery: Delivery, size: int) -> Stored:
        """Takes rows, which came in a message of `size` bytes, as soon as their plan is there.

        Raises:
            StaleEpoch: they belong to an epoch that is over.
            Unavailable: to one that has not begun here, or this one is over.
            DeadlineExceeded: their plan did not come in time.
            FailedPrecondition: they are not what the plan says.
        """
        if delivery.epoch != self.epoch:
            refuse = StaleEpoch if delivery.epoch < self.epoch else Unavailable
            raise refuse(f"the rows are of epoch {delivery.epoch}, this worker is in epoch {self.epoch}")
        await self._planned(delivery.iteration)
        arrival = self._arrivals.get(delivery.iteration)
        return Stored(0, len(delivery.rows)) if arrival is None else arrival.take(delivery, size)

    async def close(self) -> None:
        """Ends the epoch: rows that wait are refused."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def _planned(self, iteration: int) -> None:
        """Returns when the plan of an iteration is there."""
        try:
            async with asyncio.timeout(self._within), self._changed:
                await self._changed.wait_for(lambda: self._closed or iteration < self._next_iteration)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the plan of iteration {iteration} did not come within {self._within:g} s (ESD_WORKER_PEER_TIMEOUT)"
            ) from None
        if self._closed:
            raise Unavailable(f"epoch {self.epoch} is over for this worker")
