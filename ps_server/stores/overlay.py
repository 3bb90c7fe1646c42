"""One state of a table out of several that cover each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from esd_native.rows import RowTable
from services.domain.rows import RowBlock


def first_of_each(blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    """Every row where it is named first; not at all if that is at version 0. Keeps the ids in memory, not the rows."""
    seen = RowTable(0)
    for block in blocks:
        new = seen.write_newer(block.ids, np.ones(len(block), np.int64), np.empty((len(block), 0), np.float32))
        yield block[new & (block.versions > 0)]
