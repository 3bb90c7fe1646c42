"""The pulls of one frame: read part by part, each row sent as soon as it is at the version that is asked for.

A part is as many rows as fit an answer, so that no more than that is in memory at a time. What of a part is not there
yet waits (ps_server/service/waiting.py), while the parts behind it go on.

    begin -> read (in a thread of the store) -> settle -> answer, and again when a part that waited is woken
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ps_server.core.table import Table
from ps_server.service.waiting import WaitingPull, WaitingPulls, behind
from services.domain.errors import EsdError
from services.domain.rows import RowBlock
from services.runtime import metrics
from services.wire.exchange import Pulls, rows_per_answer

Answered = tuple[NDArray[np.int64], NDArray[np.float32]]  # positions [c], ascending, and rows [c, W]


class FramePulls:
    """What a frame pulls, until all of it is answered.

    Args:
        table: where the rows are.
        waiting: the waiting pulls of the table.
        pulls: what is asked for; checked.
        deadline: until when rows may be waited for, by the event loop's clock.
        wake: called when there may be something to read.
    """

    def __init__(
        self, table: Table, waiting: WaitingPulls, pulls: Pulls, deadline: float, wake: Callable[[], None]
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._deadline = deadline
        self._wake = wake
        self._gauge = metrics.WAITING_PULLS.labels(table.spec.name)
        size = rows_per_answer(table.spec)
        self._parts = deque(
            _Part(start, pulls.ids[start : start + size], pulls.versions[start : start + size])
            for start in range(0, len(pulls), size)
        )
        self._sleeping: set[_Part] = set()
        self._refusal: EsdError | None = None

    @property
    def done(self) -> bool:
        """Whether every row was answered."""
        return not self._parts and not self._sleeping

    @property
    def ready(self) -> bool:
        """Whether there is something to read now, or an error to tell."""
        return bool(self._parts) or self._refusal is not None

    def begin(self) -> Callable[[], RowBlock]:
        """Begins to read the next part, and returns what reads its rows, in any thread.

        Raises:
            EsdError: the waiting was refused, or took too long.
        """
        if self._refusal is not None:
            raise self._refusal
        part = self._parts[0]
        if part.waiting is None:
            part.waiting = WaitingPull(part.ids, part.wanted, lambda: self._woken(part))
            self._waiting.join(part.waiting)
        part.waiting.expect(part.missing)
        ids, wanted = part.ids[part.missing], part.wanted[part.missing]
        return lambda: self._table.read(ids, wanted)

    def settle(self, block: RowBlock) -> Answered:
        """Takes the rows that were read for the next part; returns those that are as asked for. The others wait.

        Raises:
            StaleVersion: a row is newer than asked for.
        """
        part = self._parts.popleft()
        at = np.flatnonzero(part.missing)
        lagging = behind(part.ids[at], block.versions, part.wanted[at])
        found = at[~lagging]
        part.missing[found] = False
        if part.waiting is not None:
            self._wait_or_leave(part, part.waiting)
        return part.start + found, block.rows if len(found) == len(at) else block.rows[~lagging]

    def close(self) -> None:
        """Waits for nothing more. May be repeated."""
        for part in (*self._parts, *self._sleeping):
            if part.waiting is not None:
                self._waiting.leave(part.waiting)
        self._gauge.dec(len(self._sleeping))
        self._parts.clear()
        self._sleeping.clear()
        self._refusal = None

    def _wait_or_leave(self, part: _Part, waiting: WaitingPull) -> None:
        if not part.missing.any():
            self._waiting.leave(waiting)
            return
        waiting.found(~part.missing)
        self._sleeping.add(part)
        self._gauge.inc()
        if waiting.complete:  # announced while it was read
            self._woken(part)
        else:
            self._waiting.wait(waiting, self._deadline)

    def _woken(self, part: _Part) -> None:
        if part not in self._sleeping or part.waiting is None:
            return
        self._sleeping.remove(part)
        self._gauge.dec()
        part.waiting.deadline = None
        self._refusal = self._refusal or part.waiting.refusal
        self._parts.append(part)
        self._wake()


class _Part:
    """Rows of one answer: those from position `start` on."""

    def __init__(self, start: int, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> None:
        self.start = start
        self.ids = ids
        self.wanted = wanted
        self.missing = np.ones(len(ids), np.bool_)
        self.waiting: WaitingPull | None = None
