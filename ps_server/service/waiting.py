"""Pulls that wait for rows, and the pushes that wake them.

A waiting pull holds no thread and no task: it is an entry here. It is woken when pushes have announced all its missing
rows, when its deadline passes, or when its rows can never come. Everything here runs on the event loop, and the store's
threads hand their announcements to the loop; so no row can be announced between a read and the entry that follows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import WaitingRows
from esd.services.domain.errors import DeadlineExceeded, EsdError, FailedPrecondition
from esd.services.runtime import metrics

# Memory that a pull holds per row, without the rows: the request, the decoded ids and versions, and the buffers of the
# checks for repeated and missing rows. Measured with 1,000,000 rows: 58.
BYTES_PER_PULLED_ID = 64


class WaitingPull:
    """An entry of WaitingPulls.

    Attributes:
        ticket: identifies the pull in `WaitingPulls.rows`.
        epoch: the epoch of its frame.
        deadline: the time by the event loop's clock until which it waits; None while it does not wait.
        refusal: the error that ended its wait; None while it may wait.
    """

    def __init__(self, ticket: int, epoch: int, wake: Callable[[], None]) -> None:
        self.ticket = ticket
        self.epoch = epoch
        self.deadline: float | None = None
        self.refusal: EsdError | None = None
        self.wake = wake

    def check(self) -> None:
        """Raises the error that ended the wait, if there is one."""
        if self.refusal is not None:
            raise type(self.refusal)(str(self.refusal))


class WaitingPulls:
    """The pulls of one table that may have to wait. Every push to the table announces its stored rows here.

    Args:
        table: the table's name, for metrics.

    Attributes:
        rows: the rows that each pull waits for.
    """

    def __init__(self, table: str) -> None:
        self.rows = WaitingRows()
        self._pulls: dict[int, WaitingPull] = {}
        self._tickets = count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._gauge = metrics.WAITING_PULLS.labels(table)
        self._waiting = 0

    @property
    def count(self) -> int:
        """Number of pulls that wait now."""
        return self._waiting

    def join(self, epoch: int, wake: Callable[[], None]) -> WaitingPull:
        """Registers a pull; `wake` is called when all its expected rows are announced, or when it is refused."""
        pull = WaitingPull(next(self._tickets), epoch, wake)
        self._pulls[pull.ticket] = pull
        return pull

    def leave(self, pull: WaitingPull) -> None:
        """Removes an entry. May be repeated."""
        self.go_on(pull)
        if self._pulls.pop(pull.ticket, None) is not None:
            self.rows.forget(pull.ticket)

    def wait(self, pull: WaitingPull, deadline: float) -> None:
        """Lets a pull wait until `deadline` by the event loop's clock, when it is refused with DeadlineExceeded."""
        if pull.deadline is None:
            self._waiting += 1
            self._gauge.inc()
        pull.deadline = deadline
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)

    def go_on(self, pull: WaitingPull) -> None:
        """Marks a pull as no longer waiting. May be repeated."""
        if pull.deadline is not None:
            pull.deadline = None
            self._waiting -= 1
            self._gauge.dec()

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Wakes the pulls whose last missing row is now readable: rows `ids`, uint64 [r], at `versions`, int64 [r]."""
        self.wake(self.rows.announce(ids, versions))

    def wake(self, tickets: Iterable[int]) -> None:
        """Wakes the pulls of these tickets, whose last row was announced."""
        for ticket in tickets:
            self._pulls[ticket].wake()

    def refuse(self, reason: FailedPrecondition, *, before: int | None = None) -> None:
        """Ends waiting pulls with this error: the pulls of epochs before `before`, or all (None)."""
        for pull in tuple(self._pulls.values()):
            if before is None or pull.epoch < before:
                self._end(pull, reason)

    def _end(self, pull: WaitingPull, reason: EsdError) -> None:
        pull.refusal = reason
        pull.wake()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        waiting = [(pull, pull.deadline) for pull in self._pulls.values() if pull.deadline is not None]
        for pull, deadline in waiting:
            if deadline <= now:
                row, version = self.rows.first_missing(pull.ticket)
                late = f"row {row} has not reached version {version} in time: its owner has not pushed it"
                self._end(pull, DeadlineExceeded(late))
        later = [deadline for _, deadline in waiting if deadline > now]
        if later:
            self._set_timer(min(later))
