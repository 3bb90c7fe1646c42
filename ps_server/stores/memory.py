"""The embedded default: rows in this process's memory."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from esd_native.rows import RowTable
from ps_server.core.sample_log import LogStore
from ps_server.stores.overlay import first_of_each
from ps_server.stores.partials import MemoryPartials
from ps_server.stores.sample_logs import MemoryLog
from services.domain.rows import RowBlock
from services.domain.tables import TableSpec

SCAN_BYTES = 1 << 20


class MemoryTable:
    """A TableStore over the native row table."""

    def __init__(self, spec: TableSpec) -> None:
        self._width = spec.row_width
        self._row_bytes = spec.row_bytes
        self._rows = RowTable(spec.row_width)
        self._dense: bytes | None = None
        self._history: bytes | None = None
        self._parts: dict[int, dict[str, bytes]] = {}
        # Pre-images by cut, at their version + 1, so that a row that was not there is stored too.
        self._undo: dict[int, RowTable] = {}
        self._cut: int | None = None
        self._changes = threading.Lock()  # a row's pre-image is taken before anything replaces it
        self._scan_rows = max(1, SCAN_BYTES // spec.row_bytes)
        self.partials = MemoryPartials(spec.dimension)
        self.log: LogStore = MemoryLog()

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        return self._rows.versions(ids)

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        return RowBlock(ids, *self._rows.read(ids))

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        with self._changes:
            if self._cut is not None:
                self._keep(self._undo[self._cut], block.ids, block.versions)
            return self._rows.write_newer(block.ids, block.versions, block.rows)

    def take_out_older(self, ids: NDArray[np.uint64], below: int) -> int:
        with self._changes:
            stored = ids[self._rows.versions(ids) > 0]
            if self._cut is not None:
                self._keep(self._undo[self._cut], stored, np.full(len(stored), below))
            return self._rows.take_out_older(stored, below)

    def scan(self) -> Iterator[RowBlock]:
        return scan(self._rows, self._scan_rows)

    def __len__(self) -> int:
        return len(self._rows)

    def totals(self) -> tuple[int, int]:
        return len(self._rows), self._rows.trainings

    def put_dense(self, data: bytes) -> None:
        self._dense = data

    def get_dense(self) -> bytes | None:
        return self._dense

    def load_history(self) -> bytes | None:
        return self._history

    def save_history(self, data: bytes) -> None:
        self._history = data

    def reopen(self, cuts: Sequence[int]) -> bool:  # noqa: ARG002
        return False  # the process is the one that had the rows

    def save(self, cut: int, earlier: int) -> tuple[int, int]:  # noqa: ARG002
        changed = len(self._undo[earlier]) if earlier else len(self._rows)
        return changed, changed * self._row_bytes

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        kept = (self._pre_images(each) for each in (cut, *later))
        return first_of_each(chain(chain.from_iterable(kept), self.scan()))

    def keep_undo(self, cut: int | None) -> None:
        with self._changes:
            if cut is not None:
                self._undo.setdefault(cut, RowTable(self._width))
            self._cut = cut

    def undo(self, cut: int) -> int:
        count = 0
        for block in self._pre_images(cut):
            self._rows.overwrite(block.ids, block.versions, block.rows)
            count += len(block)
        self._undo.pop(cut, None)
        return count

    def forget(self, cut: int) -> None:
        self._undo.pop(cut, None)

    def clear(self) -> None:
        self._rows = RowTable(self._width)
        self.partials.clear()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._parts.setdefault(checkpoint, {})[name] = data

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return self._parts.get(checkpoint, {}).get(name)

    def parts(self) -> set[int]:
        return set(self._parts)

    def drop_parts(self, checkpoint: int) -> None:
        self._parts.pop(checkpoint, None)

    def _pre_images(self, cut: int) -> Iterator[RowBlock]:
        """What is kept under a cut; version 0 where there was no row."""
        if cut in self._undo:
            for block in scan(self._undo[cut], self._scan_rows):
                yield RowBlock(block.ids, block.versions - 1, block.rows)

    def _keep(self, kept: RowTable, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        """Keeps the rows that are below these versions, which change now, and that are not kept yet."""
        new = kept.versions(ids) == 0
        new &= self._rows.versions(ids) < versions
        ids = ids[new]
        versions, rows = self._rows.read(ids)
        kept.write_newer(ids, versions + 1, rows)


def scan(rows: RowTable, limit: int) -> Iterator[RowBlock]:
    """Every row of a native table, `limit` at a time."""
    cursor, ids, versions, values = rows.scan(0, limit)
    while len(ids):
        yield RowBlock(ids, versions, values)
        cursor, ids, versions, values = rows.scan(cursor, limit)


class MemoryStore:
    """A Store that lasts as long as the process."""

    name = "memory"

    def __init__(self) -> None:
        self._tables: dict[str, tuple[TableSpec, MemoryTable]] = {}
        self._creation = threading.Lock()

    def tables(self) -> list[TableSpec]:
        return [spec for spec, _ in self._tables.values()]

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        with self._creation:
            if spec.name in self._tables:
                return self._tables[spec.name][0], False
            self._tables[spec.name] = (spec, self._make(spec))
            return spec, True

    def _make(self, spec: TableSpec) -> MemoryTable:
        return MemoryTable(spec)

    def open(self, spec: TableSpec) -> MemoryTable:
        return self._tables[spec.name][1]

    def shards(self, table: str) -> int:  # noqa: ARG002
        return 0  # nothing outlives the process

    def claim(self, *, alone: bool) -> None:
        """No other process can reach it."""

    def ping(self) -> None:
        """Memory is always there."""

    def close(self) -> None:
        self._tables.clear()
