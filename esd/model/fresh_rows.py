"""Newer rows of a model, in memory, over the rows of its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.services.domain.ids import shard_of

if TYPE_CHECKING:
    from esd.model.table import TrainedTable

_SOUGHT = 2**20  # ids of the folder that are looked through at a time


@dataclass(frozen=True, slots=True)
class _Anew:
    """All rows of a shard, which are not complete yet.

    Attributes:
        rows: those that differ from the folder's.
        seen: bool [R], which rows of the folder are among all rows.
    """

    rows: native.RowTable
    seen: NDArray[np.bool_]


class FreshRows:
    """The newer rows of a table, by shard. One thread changes a shard, while others look rows up; each row is whole.

    Rows of a shard begin with all rows of its server (`begin`, `put`, `complete`), of which those are kept that differ
    from the folder's; until they are complete, the rows before them count. Further ones are put over them.

    Args:
        table: of the folder.
        shards: number of shards.
    """

    def __init__(self, table: TrainedTable, shards: int) -> None:
        self._table = table
        self._parts = [self._empty() for _ in range(shards)]
        self._anew: dict[int, _Anew] = {}

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the rows take, those included that are not complete."""
        anew = list(self._anew.values())
        return sum(part.memory_bytes for part in (*self._parts, *(each.rows for each in anew))) + sum(
            each.seen.nbytes for each in anew
        )

    def begin(self, shard: int) -> None:
        """All rows of the shard follow."""
        self._anew[shard] = _Anew(self._empty(), np.zeros(len(self._table.ids), np.bool_))

    def put(self, shard: int, ids: NDArray[np.uint64], values: NDArray[np.float32]) -> None:
        """Puts rows of distinct ids [c], float32 [c, D], in place of those before."""
        if shard not in self._anew:
            _store(self._parts[shard], ids, values)
            return
        anew = self._anew[shard]
        places, known = self._table.find(ids)
        anew.seen[places[known]] = True
        self._store_other(anew.rows, ids, values)

    def abandon(self, shard: int) -> None:
        """No more of the rows that began to follow will come."""
        self._anew.pop(shard, None)

    def complete(self, shard: int) -> None:
        """All rows have come, if they began to: any other row of the folder has its initial values again."""
        anew = self._anew.get(shard)
        if anew is None:
            return
        for start in range(0, len(anew.seen), _SOUGHT):
            ids = np.asarray(self._table.ids[start : start + _SOUGHT])
            gone = ids[~anew.seen[start : start + _SOUGHT] & (shard_of(ids, len(self._parts)) == shard)]
            self._store_other(anew.rows, gone, self._table.initial(gone))
        self._parts[shard] = anew.rows
        del self._anew[shard]

    def lay_over(self, ids: NDArray[np.uint64], rows: NDArray[np.float32]) -> None:
        """Replaces the rows of distinct ids [n], float32 [n, D], that have newer ones."""
        owners = shard_of(ids, len(self._parts))
        for shard, part in enumerate(self._parts):
            own = np.flatnonzero(owners == shard)
            versions, values = part.read(ids[own])
            newer = versions > 0
            rows[own[newer]] = values[newer]

    def _empty(self) -> native.RowTable:
        return native.RowTable(self._table.spec.dimension)

    def _store_other(self, rows: native.RowTable, ids: NDArray[np.uint64], values: NDArray[np.float32]) -> None:
        """Stores rows that differ from the folder's, bit by bit."""
        other = (self._table.stored(ids).view(np.uint32) != values.view(np.uint32)).any(axis=1)
        _store(rows, ids[other], values[other])


def _store(rows: native.RowTable, ids: NDArray[np.uint64], values: NDArray[np.float32]) -> None:
    rows.overwrite(ids, np.ones(len(ids), np.int64), values)
