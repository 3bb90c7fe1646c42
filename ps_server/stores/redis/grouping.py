"""Shares rows out over commands: a command names few enough rows, and in a cluster rows of one partition only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

# Redis does nothing else while a command runs. Scripts and replies of a quarter MiB are also the fastest: larger
# ones leave the processor's cache, and many small ones cost an fsync each (measured with rows of 2 KiB).
_MAX_ROWS = 500
_MAX_BYTES = 1 << 18

S = TypeVar("S", bound=np.generic)


def rows_per_command(row_bytes: int) -> int:
    """Most rows of `row_bytes` that one command should name."""
    return max(1, min(_MAX_ROWS, _MAX_BYTES // row_bytes))


@dataclass(frozen=True, slots=True)
class Groups:
    """An order of r rows, and the part of that order for each command.

    Attributes:
        order: int [r], None when the rows are taken as they come.
        parts: consecutive parts of the order.
    """

    order: NDArray[np.intp] | None
    parts: Sequence[slice]

    def arrange(self, column: NDArray[S]) -> NDArray[S]:
        """The column in this order."""
        return column if self.order is None else column[self.order]

    def restore(self, column: NDArray[S]) -> NDArray[S]:
        """A column in this order, back in the order of the rows."""
        if self.order is None:
            return column
        restored = np.empty_like(column)
        restored[self.order] = column
        return restored


def as_they_come(rows: int, size: int) -> Groups:
    """Groups of up to `size` rows."""
    return Groups(None, _slices(0, rows, size))


def by_partition(partitions: NDArray[np.int64], size: int) -> Groups:
    """Groups of up to `size` rows of one partition each."""
    order = np.argsort(partitions, kind="stable")
    edges = np.flatnonzero(np.diff(partitions[order], prepend=-1, append=-1)).tolist()
    parts = [part for start, end in pairwise(edges) for part in _slices(start, end, size)]
    return Groups(order, parts)


def _slices(start: int, end: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, end)) for at in range(start, end, size)]
