"""The pulls of one frame: each row is sent as soon as it is at the version that is asked for.

They are read in parts of as many rows as fit an answer, so that no more than that is in memory at a time. Rows that are
not there yet wait (ps_server/service/waiting.py), while the parts behind them go on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import ExactPulls
from esd.ps_server.core.table import Table
from esd.ps_server.service.store_access import StoreThreads
from esd.ps_server.service.waiting import WaitingPulls
from esd.services.domain.errors import StaleVersion
from esd.services.domain.rows import RowBlock
from esd.services.wire.exchange import Stored, rows_per_answer


class FramePulls:
    """What a frame pulls, until all of it is answered.

    Args:
        table: where the rows are.
        waiting: the waiting pulls of the table.
        pulls: what is asked for; checked.
        sequence: of the frame.
        epoch: of the frame.
        deadline: until when rows may be waited for, by the event loop's clock.
        wake: called when there may be something to read.
    """

    def __init__(
        self,
        table: Table,
        waiting: WaitingPulls,
        pulls: ExactPulls,
        sequence: int,
        epoch: int,
        deadline: float,
        wake: Callable[[], None],
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._pulls = pulls
        self._sequence = sequence
        self._deadline = deadline
        self._wake = wake
        self._entry = waiting.join(epoch, self._woken)
        self._limit = rows_per_answer(table.row_bytes)
        self._reading = False

    @property
    def done(self) -> bool:
        """Whether every row was answered."""
        return self._pulls.done

    @property
    def ready(self) -> bool:
        """Whether there is something to read now, or an error to tell."""
        return not self._reading and (self._pulls.due > 0 or self._entry.refusal is not None)

    def begin(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Begins to read a part: the ids and wanted versions of its rows. `settle` takes them.

        Raises:
            EsdError: the waiting was refused, or took too long.
        """
        self._entry.check()
        self._reading = True
        # What is announced while it is read counts, so that nothing is missed.
        self._waiting.rows.expect_due(self._entry.ticket, self._pulls, self._limit)
        return self._pulls.due_rows(self._limit)

    def settle(self, block: RowBlock, stored: Stored | None = None) -> bytes | None:
        """Takes the rows that were read; the answer with those that are as asked for, None if there is nothing to tell.

        Raises:
            StaleVersion: a row is newer than asked for.
        """
        self._reading = False
        counts = None if stored is None else (stored.new, stored.already_known)
        dimension = self._table.spec.dimension
        message = self._pulls.answer(self._sequence, counts, block.versions, block.rows, dimension)
        self._waiting.rows.found(self._entry.ticket, self._pulls)
        self._wait()
        return message

    async def go_on(self, threads: StoreThreads) -> bytes | None:
        """Reads the next part; the answer, or None if there is nothing to tell. Raises as `begin` and `settle` do."""
        self._entry.check()
        if self._table.frames is None:
            return self.settle(await threads.read(self._table.read, *self.begin()))
        message = self._table.frames.answer(self._pulls, self._sequence, self._limit)
        self.lag()
        return message

    def lag(self) -> None:
        """Lets the rows wait that were found to be behind when they were read at once.

        Raises:
            StaleVersion: a row is newer than asked for.
        """
        self._waiting.rows.expect_behind(self._entry.ticket, self._pulls)
        self._wait()

    def close(self) -> None:
        """Waits for nothing more. May be repeated."""
        self._waiting.leave(self._entry)

    def _wait(self) -> None:
        if self._pulls.stale is not None:
            row, version, wanted = self._pulls.stale
            raise StaleVersion(f"row {row} is at version {version}, the pull wants the older version {wanted}")
        if not self._pulls.lagging:
            return
        if not self._waiting.rows.missing(self._entry.ticket):  # announced while it was read
            self._pulls.retry()
        elif not self._pulls.due:
            self._waiting.wait(self._entry, self._deadline)

    def _woken(self) -> None:
        self._waiting.go_on(self._entry)
        if not self._reading:
            self._pulls.retry()
        self._wake()
