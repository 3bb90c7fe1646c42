"""The pulls of one frame: each row is sent as soon as it has reached the wanted version.

Rows are read in parts that fit one answer, so no more than one answer's rows are in memory at a time. Rows that are not
at their version yet wait (ps_server/service/waiting.py), and the parts after them are read meanwhile.
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
from esd.services.wire.exchange import rows_per_answer


class FramePulls:
    """The pulls of a frame that are not answered yet.

    Args:
        table: the table of the rows.
        waiting: the waiting pulls of the table.
        pulls: the wanted rows, already checked.
        sequence: the sequence of the frame.
        epoch: the epoch of the frame.
        deadline: the time by the event loop's clock until which rows may be waited for.
        longest_row: the most bytes of a row in an answer.
        wake: called when rows may be ready to be read.
    """

    def __init__(
        self,
        table: Table,
        waiting: WaitingPulls,
        pulls: ExactPulls,
        sequence: int,
        epoch: int,
        deadline: float,
        longest_row: int,
        wake: Callable[[], None],
    ) -> None:
        self._table = table
        self._waiting = waiting
        self._pulls = pulls
        self._sequence = sequence
        self._deadline = deadline
        self._wake = wake
        self._entry = waiting.join(epoch, self._woken)
        self._limit = rows_per_answer(longest_row)
        self._reading = False

    @property
    def done(self) -> bool:
        """Whether every row is answered."""
        return self._pulls.done

    @property
    def ready(self) -> bool:
        """Whether rows can be read now, or an error must be answered."""
        return not self._reading and (self._pulls.due > 0 or self._entry.refusal is not None)

    def begin(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Begins to read a part: returns the ids and wanted versions of its rows, which `settle` expects.

        Raises:
            EsdError: the wait was refused, or has taken too long.
        """
        self._entry.check()
        self._reading = True
        # Before the read, so that rows announced during the read are not missed.
        self._waiting.rows.begin_read(self._entry.ticket)
        return self._pulls.due_rows(self._limit)

    def settle(self, block: RowBlock, initial: NDArray[np.bool_], *, storing: bool) -> bytes | None:
        """Returns the answer with the read rows that have reached their version, or None if it would be empty.

        Raises:
            StaleVersion: a row is newer than the wanted version.
        """
        self._reading = False
        dimension = self._table.spec.dimension
        message = self._pulls.answer(self._sequence, block.versions, block.rows, initial, dimension, storing)
        self._waiting.rows.end_read(self._entry.ticket, self._pulls)
        self._wait()
        return message

    async def go_on(self, threads: StoreThreads, storing: Callable[[], bool] = lambda: False) -> bytes | None:
        """Reads the next part; returns its answer, or None if it would be empty. Raises as `begin` and `settle` do.

        Args:
            threads: to read in.
            storing: returns whether the pushes of the frame are still to be acknowledged after this answer, so that it
                is not the last one; asked when the rows are read.
        """
        self._entry.check()
        if self._table.frames is None:
            found = await threads.read(self._table.read_exact, *self.begin())
            return self.settle(*found, storing=storing())
        message = self._table.frames.answer(self._pulls, self._sequence, self._limit, storing=storing())
        self.lag()
        return message

    def lag(self) -> None:
        """Lets the rows wait that the native call found behind their wanted version.

        Raises:
            StaleVersion: a row is newer than the wanted version.
        """
        self._waiting.rows.expect_behind(self._entry.ticket, self._pulls)
        self._wait()

    def close(self) -> None:
        """Ends the wait. May be repeated."""
        self._waiting.leave(self._entry)

    def _wait(self) -> None:
        if self._pulls.stale is not None:
            row, version, wanted = self._pulls.stale
            raise StaleVersion(f"row {row} is at version {version}, the pull wants the older version {wanted}")
        if not self._pulls.lagging:
            return
        if not self._waiting.rows.missing(self._entry.ticket):  # all were announced during the read: read them again
            self._pulls.retry()
        elif not self._pulls.due:
            self._waiting.wait(self._entry, self._deadline)

    def _woken(self) -> None:
        self._waiting.go_on(self._entry)
        if not self._reading:
            self._pulls.retry()
        self._wake()
