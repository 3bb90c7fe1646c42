"""The rows of a table in a model's folder: three arrays, written as a stream and mapped into memory when loaded."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from esd.model.files import IDS, ROWS, TABLES, VERSIONS, FolderWriter
from esd.model.fresh_rows import FreshRows
from esd.model.sorted_rows import SortedRows
from esd.native import rows as native
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import trainings


def write_table(folder: FolderWriter, table: TableSpec, rows: SortedRows) -> None:
    """Writes all rows of a table, a piece at a time."""
    for column, name in (("ids", IDS), ("versions", VERSIONS), ("rows", ROWS)):
        shape, kind = rows.shapes[column]
        header = {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
        with folder.open(f"{TABLES}/{table.name}/{name}") as file:
            npy.write_array_header_1_0(file, header)
            for part in rows.column(column):
                values = trainings(part) if column == "versions" else part
                file.write(np.ascontiguousarray(values).tobytes())


class TrainedTable:
    """The trained rows of a table, on disk; only the pages that look-ups touch are read.

    Args:
        folder: of the model.
        spec: the table.

    Attributes:
        ids: uint64 [R], ascending.
        rows: float32 [R, D].
        versions: int64 [R], how often each row was trained in its present life.
        fresh: newer rows, over the folder's; None: there are none.

    Raises:
        InvalidArgument: a file is missing, damaged or of another table.
    """

    def __init__(self, folder: Path, spec: TableSpec) -> None:
        self.spec = spec
        self.fresh: FreshRows | None = None
        place = folder / TABLES / spec.name
        self.ids: NDArray[np.uint64] = _mapped(place / IDS, "<u8", ())
        self.versions: NDArray[np.int64] = _mapped(place / VERSIONS, "<i8", ())
        self.rows: NDArray[np.float32] = _mapped(place / ROWS, "<f4", (spec.dimension,))
        if isinstance(self.rows.base, mmap.mmap):
            # Look-ups read rows here and there: the kernel would read 128 KiB around each, 30 times as much.
            self.rows.base.madvise(mmap.MADV_RANDOM)
        if not len(self.ids) == len(self.versions) == len(self.rows):
            raise InvalidArgument(
                f"{place} is damaged: it has {len(self.ids)} ids, {len(self.versions)} versions, {len(self.rows)} rows"
            )

    def look_up(self, ids: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Returns the rows of ids [n], float32 [n, D]. Ids that were never trained have their initial rows."""
        wanted, inverse = np.unique(ids, return_inverse=True)
        rows = self.stored(wanted)
        if self.fresh is not None:
            self.fresh.lay_over(wanted, rows)
        found: NDArray[np.float32] = rows[inverse]
        return found

    def stored(self, ids: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Returns the folder's rows of ids [n], float32 [n, D]; initial rows of those that it does not have."""
        places, known = self.find(ids)
        rows = np.empty((len(ids), self.spec.dimension), np.float32)
        rows[known] = self.rows[places[known]]
        rows[~known] = self.initial(ids[~known])
        return rows

    def find(self, ids: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the places of ids [n] in the folder, int64 [n], and which of them are there, bool [n]."""
        # A binary search per id; an operation on all known ids would take seconds for ten million of them.
        places = np.searchsorted(self.ids, ids)
        within = places < len(self.ids)
        known = np.zeros(len(ids), np.bool_)
        known[within] = self.ids[places[within]] == ids[within]
        return places, known

    def initial(self, ids: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Returns the initial rows of ids [n], float32 [n, D]."""
        rows = np.empty((len(ids), self.spec.dimension), np.float32)
        native.initialise(
            ids, np.zeros(len(ids), np.int64), rows, self.spec.dimension, self.spec.seed, self.spec.init_scale
        )
        return rows


def _mapped(path: Path, kind: str, row: tuple[int, ...]) -> Any:
    try:
        with path.open("rb") as file:
            version = npy.read_magic(file)
            shape, _, found = npy.read_array_header_1_0(file) if version == (1, 0) else ((), False, None)
        if found != np.dtype(kind) or shape[1:] != row:
            raise InvalidArgument(f"{path} is {found} of shape {shape}, it must be {kind} of rows {row}")
        # An array without elements cannot be mapped.
        return np.load(path, mmap_mode="r" if shape[0] else None, allow_pickle=False)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgument(f"{path} is damaged: {error}") from None
