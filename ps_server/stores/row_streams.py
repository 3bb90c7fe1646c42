"""Streams of row blocks, which the stores read, overlay and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from esd.native.rows import IdSet, PreImages, RowTable
from esd.services.domain.rows import RowBlock


def first_of_each(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """Yields each row as the first block that names it has it, and omits a row that is at version 0 there.

    Keeps the ids of all rows in memory, not the rows.
    """
    seen = IdSet()
    for block in blocks:
        new = seen.add(block.ids)
        yield block[new & (block.versions > 0)]


def scan(rows: RowTable | PreImages, limit: int) -> Iterator[RowBlock]:
    """Yields every row of a native table, in blocks of at most `limit`."""
    cursor, ids, versions, values = rows.scan(0, limit)
    while len(ids):
        yield RowBlock(ids, versions, values)
        cursor, ids, versions, values = rows.scan(cursor, limit)
