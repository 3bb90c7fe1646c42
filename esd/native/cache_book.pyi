"""The book of a worker's cache, native."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Columns of r rows: ids uint64 [r], slots uint32 [r], versions int64 [r], all C-contiguous.
Rows = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]

# The same, and contributors uint64 [r].
Gradients = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint64]]

class Misfit(ValueError):
    """A plan does not fit the cache; the text says which row, and what is in its slot."""

class SlotBook:
    """Which row is in which slot of a worker's cache, at which version and in which state; empty at first.

    States are 0 empty, 1 clean (the parameter server has the row, too), 2 owned (the only copy of the latest value),
    3 partial (this worker's gradient of a split row), 4 spent (a gradient that is pushed: the row must be pulled).

    Args:
        rows: slots that each table of the job may use, by number. With several tables, the top 8 bits of an id are the
            number of its table.
        worker: slot of the worker in the job, 0..63.
        keeps_copies: a trained copy stays at its version and is partial until what was gathered on it is pushed, for a
            later version, which is the copy's from then on; then it is clean, and may be trained or pulled again.
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
            where: begins the text of a misfit.
            discards: forgotten rows.
            update_rows: owned rows that are pushed and stay.
            update_gradients: partial gradients that are pushed and leave their slots spent.
            evict_rows: owned rows that are pushed and leave.
            evict_gradients: partial gradients that are pushed and leave.
            drops: rows that leave without anything unpushed.
            pulls: rows that come, with their versions.
            trained: the unique rows, with their versions before training.
            reduced: uint32 [h], places of the replicated ones among these, ascending. Whom their contributors name
                owns them afterwards; the copies of the others are clean.

        Raises:
            Misfit: a row is not what the plan takes for granted, a slot does not exist or is named twice in one list,
                or this worker is none of a row's contributors.
            ValueError: the columns of a list differ in length.
        """

    def enter_flush(self, where: str, rows: Rows, gradients: Gradients) -> None:
        """Enters a flush. Raises Misfit as `enter` does, or if something stays behind that is not pushed."""

    def enter_reload(self, rows: Rows, outdated: Rows) -> None:
        """Fills an empty cache with clean rows, and with spent slots. Raises Misfit as `enter` does."""

    @property
    def cached(self) -> int:
        """The number of slots in use."""

    def contents(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint8]]:
        """Returns what the slots hold: ids uint64 [C], versions int64 [C] and states uint8 [C].

        With several tables, those that were ever named, table by table.
        """
