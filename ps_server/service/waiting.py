"""The rows that pulls wait for, and who tells them that they are there.

A pull that waits holds no thread and no task: it is an entry here, which is woken when pushes have announced all rows
that it lacks, when its time is over, or when nothing will come any more. The store's threads hand announcements to the
event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from services.domain.errors import DeadlineExceeded, EsdError, FailedPrecondition, StaleVersion


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
        self._timer: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """How many pulls wait now."""
        return sum(pull.deadline is not None for pull in self._pulls)

    def join(self, pull: WaitingPull) -> None:
        """Lets a pull hear of every announcement from now on."""
        self._pulls.add(pull)

    def leave(self, pull: WaitingPull) -> None:
        """Tells a pull nothing more. May be repeated."""
        pull.deadline = None
        self._pulls.discard(pull)

    def wait(self, pull: WaitingPull, deadline: float) -> None:
        """Lets a pull wait until this time of the event loop's clock, when it is refused with DeadlineExceeded."""
        pull.deadline = deadline
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)

    def announce(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Wakes the pulls that can go on now that rows `ids`, uint64 [r], can be read at `versions`, int64 [r]."""
        for pull in tuple(self._pulls):
            pull.announce(ids, versions)

    def refuse(self, reason: FailedPrecondition) -> None:
        """Ends the pulls that wait with this error."""
        for pull in tuple(self._pulls):
            pull.refuse(reason)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        waiting = [(pull, pull.deadline) for pull in self._pulls if pull.deadline is not None]
        for pull, deadline in waiting:
            if deadline <= now:
                pull.refuse(pull.lateness())
        later = [deadline for _, deadline in waiting if deadline > now]
        if later:
            self._set_timer(min(later))


class WaitingPull:
    """The rows that one pull waits for, and which of them have been announced since it began to read them.

    Args:
        ids: uint64 [r], distinct.
        wanted: int64 [r], the version that each row must have.
        wake: called when every expected row was found or announced, or the pull is refused.

    Attributes:
        deadline: until when it waits, by the event loop's clock; None while it does not wait.
        refusal: why it can wait no more; None while it can.
    """

    def __init__(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64], wake: Callable[[], None]) -> None:
        self.deadline: float | None = None
        self.refusal: EsdError | None = None
        self._ids = ids
        self._wanted = wanted
        self._wake = wake
        self._order = np.argsort(ids)
        self._sorted_ids = ids[self._order]
        self._missing = np.zeros(len(ids), np.bool_)

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
            self._wake()

    def refuse(self, reason: EsdError) -> None:
        """Ends the waiting with this error."""
        self.refusal = reason
        self._wake()

    def first_missing(self) -> int | None:
        """Returns the position of a row that is still waited for; None if there is none."""
        return None if self.complete else int(np.argmax(self._missing))

    def lateness(self) -> DeadlineExceeded:
        """Returns the error that names a row which has not come in time."""
        at = self.first_missing() or 0
        return DeadlineExceeded(
            f"row {self._ids[at]} has not reached version {self._wanted[at]} in time: its owner has not pushed it"
        )
