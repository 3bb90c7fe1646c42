"""The book of a worker's cache, native."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Columns of r rows: ids uint64 [r], slots uint32 [r], versions int64 [r], all C-contiguous.
Rows = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]

# The same, and contributors uint64 [r], or uint64 [r, 2] in a job of more than 64 workers.
Gradients = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint64]]

class Misfit(ValueError):
    """A plan does not fit the cache; the text names the row and the content of its slot."""

class SlotBook:
    """The row, version and state of every slot of a worker's cache; empty at first.

    States are 0 empty, 1 clean (the parameter server has the row, too), 2 owned (the only copy of the latest value),
    3 partial (this worker's gradient of a split row), 4 spent (a gradient that is pushed: the row must be pulled).

    Args:
        rows: slots that each table of the job may use, by number. With several tables, the top 8 bits of an id are the
            number of its table.
        worker: slot of the worker in the job, 0..127.
        keeps_copies: whether a trained copy stays at its version and is partial until its gathered gradients are pushed
            for a later version, which the copy then has; then it is clean, and may be trained or pulled again.
    """

    def __init__(self, rows: Sequence[int], worker: int, keeps_copies: bool = False) -> None: ...
    def enter(
        self,
        where: str,
        discards: Rows,
        update_rows: Rows,
        update_gradients: Gradients,
        evict_rows: Rows,
        evict_gradients: Gradients,
        drops: Rows,
        pulls: Rows,
        trained: Gradients,
        reduced: NDArray[np.uint32],
    ) -> None:
        """Enters the columns of a plan (esd.services.domain.plans.IterationPlan) in this order, all or nothing.

        Args:
            where: beginning of the text of a misfit.
            discards: forgotten rows.
            update_rows: owned rows that are pushed and stay.
            update_gradients: partial gradients that are pushed and leave their slots spent.
            evict_rows: owned rows that are pushed and leave.
            evict_gradients: partial gradients that are pushed and leave.
            drops: rows that leave with nothing to push.
            pulls: rows that enter, with their versions.
            trained: the unique rows, with their versions before training.
            reduced: uint32 [h], places of the replicated rows among these, ascending. The worker in their contributors
                owns them afterwards; the copies of the other workers are clean.

        Raises:
            Misfit: a row, its version or its state is not as the plan assumes; a slot does not exist or occurs twice in
                one list; or this worker is no contributor of a row.
            ValueError: the columns of a list differ in length.
        """

    def enter_flush(self, where: str, rows: Rows, gradients: Gradients) -> None:
        """Enters a flush. Raises Misfit as `enter` does, or if an unpushed row or gradient remains."""

    def enter_reload(self, rows: Rows, outdated: Rows) -> None:
        """Fills an empty cache with clean rows, and with spent slots. Raises Misfit as `enter` does."""

    @property
    def cached(self) -> int:
        """The number of slots in use."""

    def contents(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint8]]:
        """Returns the content of the slots: ids uint64 [C], versions int64 [C] and states uint8 [C].

        With several tables, C counts the slots that were ever used, table by table.
        """
