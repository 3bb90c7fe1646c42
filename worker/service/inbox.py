"""The inbox of a worker: rows that other workers send directly."""

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

_KEPT = 4  # iterations whose rows are still compared with their plan


class ExpectedRows:
    """The rows of one table that other workers send in one iteration, and the array that receives them.

    Args:
        rows: the rows, by the plan.
        staging: float32 [.., W], the array.
        places: int64 [r], the place of each row in `staging`.

    Attributes:
        missing: number of rows that have not arrived.
    """

    def __init__(self, rows: Transfers, staging: NDArray[np.float32], places: NDArray[np.int64]) -> None:
        self.missing = len(rows)
        order = np.argsort(rows.ids)
        self._places = places[order]
        # One more entry, with a version that does not exist: an unknown id is compared with it.
        self._ids = np.append(rows.ids[order], np.uint64(0))
        self._versions = np.append(rows.versions[order], -1)
        self._staging = staging
        self._arrived = np.zeros(len(rows), np.bool_)

    def take(self, block: RowBlock) -> int:
        """Copies rows to their places, except for repeated rows, and returns the number of new ones.

        Raises:
            FailedPrecondition: a row is not expected, or has another version; then no row is copied.
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
        if not self.missing:  # from here on the iteration owns the array
            self._staging = np.empty((0, self._staging.shape[1]), np.float32)
        return count


class Arrival:
    """The rows of all tables that other workers send in one iteration.

    Args:
        iteration: its number.
        tables: the rows of each table, by number; empty if the iteration expects none.
        within: seconds to wait for the rows.

    Attributes:
        bytes: size of the messages with new rows.
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
        """The number of rows that have not arrived."""
        return sum(rows.missing for rows in self._tables)

    def take(self, delivery: Delivery, size: int) -> Stored:
        """Accepts the rows of a message of `size` bytes.

        Raises:
            FailedPrecondition: the iteration does not expect these rows.
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
            DeadlineExceeded: some rows have not arrived in time.
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
    """Accepts the rows that other workers send in one epoch.

    Plans and rows arrive over different streams, in any order: rows wait for their plan, together with their stream.
    Rows of an iteration that ended long ago are all repeated rows.

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
        """Expects the rows of the next iteration, and returns their arrival."""
        arrival = Arrival(iteration, tables, self._within)
        async with self._changed:
            self._next_iteration = iteration + 1
            self._arrivals[iteration] = arrival
            self._arrivals.pop(iteration - _KEPT, None)  # it is complete, since this iteration begins
            self._changed.notify_all()
        return arrival

    async def take(self, delivery: Delivery, size: int) -> Stored:
        """Accepts the rows of a message of `size` bytes, as soon as their plan has arrived.

        Raises:
            StaleEpoch: the rows belong to an epoch that is over.
            Unavailable: the rows belong to an epoch that has not begun here, or this epoch is over.
            DeadlineExceeded: their plan has not arrived in time.
            FailedPrecondition: the plan does not expect these rows.
        """
        if delivery.epoch != self.epoch:
            refuse = StaleEpoch if delivery.epoch < self.epoch else Unavailable
            raise refuse(f"the rows are of epoch {delivery.epoch}, this worker is in epoch {self.epoch}")
        await self._planned(delivery.iteration)
        arrival = self._arrivals.get(delivery.iteration)
        return Stored(0, len(delivery.rows)) if arrival is None else arrival.take(delivery, size)

    async def close(self) -> None:
        """Ends the epoch: waiting rows are refused."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def _planned(self, iteration: int) -> None:
        """Returns when the plan of an iteration has arrived."""
        try:
            async with asyncio.timeout(self._within), self._changed:
                await self._changed.wait_for(lambda: self._closed or iteration < self._next_iteration)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the plan of iteration {iteration} did not come within {self._within:g} s (ESD_WORKER_PEER_TIMEOUT)"
            ) from None
        if self._closed:
            raise Unavailable(f"epoch {self.epoch} is over for this worker")
