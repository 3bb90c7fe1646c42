"""Streams of row blocks: what the stores read, lay over one another and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import RowTable
from esd.services.domain.rows import RowBlock


class SeenIds:
    """The ids that have come by in a stream. Keeps the ids in memory, not the rows."""

    def __init__(self) -> None:
        self._seen = RowTable(0)

    def add(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Adds ids; True for each that had not come by before, bool [r]."""
        return self._seen.write_newer(ids, np.ones(len(ids), np.int64), np.empty((len(ids), 0), np.float32))


def first_of_each(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """Yields every row as the first block has it that names it; not at all if it is at version 0 there.

    So a state of a table comes out of its pre-images, the earliest first, laid over its present rows.
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
