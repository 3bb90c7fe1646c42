"""Pulls that wait for versions, and the pushes that wake them. A waiting pull holds no thread.

Everything here runs on the event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ps_server.core.versions import Awaited
from services.domain.errors import DeadlineExceeded


class Waiter:
    """One pull's wait for its rows; see Awaited for the protocol."""

    def __init__(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> None:
        self._ids = ids
        self._wanted = wanted
        self._awaited = Awaited(ids, wanted)
        self._changed = asyncio.Event()
        self.waiting = False

    def expect(self, rows: NDArray[np.bool_]) -> None:
        """These rows, bool [r], are about to be read."""
        self._awaited.expect(rows)

    def found(self, rows: NDArray[np.bool_]) -> None:
        """These rows, bool [r], have the wanted version."""
        self._awaited.found(rows)

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Rows `ids` can be read at `versions`."""
        self._awaited.announce(ids, versions)
        if self._awaited.complete:
            self._changed.set()

    async def wait(self, deadline: float) -> None:
        """Returns when every expected row was found or announced.

        Args:
            deadline: time of the event loop's clock.

        Raises:
            DeadlineExceeded: names a row that is still missing.
        """
        self.waiting = True
        try:
            async with asyncio.timeout_at(deadline):
                while not self._awaited.complete:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            at = self._awaited.first_missing() or 0
            raise DeadlineExceeded(
                f"row {self._ids[at]} has not reached version {self._wanted[at]} in time: its owner has not pushed it"
            ) from None
        finally:
            self.waiting = False


class Arrivals:
    """The waiting pulls of one table."""

    def __init__(self) -> None:
        self._waiters: set[Waiter] = set()

    @property
    def waiting(self) -> int:
        """Pulls that wait now."""
        return sum(waiter.waiting for waiter in self._waiters)

    @contextmanager
    def expecting(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> Iterator[Waiter]:
        """A waiter that hears of every announcement while the block runs."""
        waiter = Waiter(ids, wanted)
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.remove(waiter)

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Wakes the pulls that can go on now that rows `ids` can be read at `versions`."""
        for waiter in self._waiters:
            waiter.announce(ids, versions)
