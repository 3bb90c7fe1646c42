"""Streams of row blocks, which the stores read, overlay and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import RowTable
from esd.services.domain.rows import RowBlock


class SeenIds:
    """The ids that a stream has yielded so far. Keeps the ids in memory, not the rows."""

    def __init__(self) -> None:
        self._seen = RowTable(0)

    def add(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Adds ids; returns for each whether it is new, bool [r]."""
        return self._seen.write_newer(ids, np.ones(len(ids), np.int64), np.empty((len(ids), 0), np.float32))


def first_of_each(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """Yields each row as the first block that names it has it, and omits a row that is at version 0 there.

    The earliest pre-images followed by later ones and the present rows thus yield the state at an earlier cut.
    """
    seen = SeenIds()
    for block in blocks:
        new = seen.add(block.ids)
        yield block[new & (block.versions > 0)]


def scan(rows: RowTable, limit: int) -> Iterator[RowBlock]:
    """Yields every row of a native table, in blocks of at most `limit`."""
    cursor, ids, versions, values = rows.scan(0, limit)
    while len(ids):
        yield RowBlock(ids, versions, values)
        cursor, ids, versions, values = rows.scan(cursor, limit)
