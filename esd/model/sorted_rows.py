"""Rows of a table by ascending ids, sorted on the disk: a table of any size becomes a file in bounded memory."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.rows import RowBlock

_RUN_BYTES = 64 * 2**20
_SAMPLED = 256  # ids of a run, by which the ranges of the merge are chosen


class SortedRows:
    """Takes rows in any order, and yields their columns in the order of their ids: an external merge sort.

    Rows are sorted in runs of 64 MiB, which go to files without names. The runs are then merged by ranges of ids, each
    of about as many rows as a run has.

        with SortedRows(dimension, folder) as table:
            table.add(block)
            for ids in table.column("ids"):
                ...

    Args:
        dimension: floats of a row's values, D.
        folder: where the files are, of an existing file system with room for all rows.
        run_bytes: of a run.

    Attributes:
        rows: number of rows so far, R.
        shapes: shape and dtype of each column: `ids`, `rows` and `versions`.
    """

    def __init__(self, dimension: int, folder: Path, run_bytes: int = _RUN_BYTES) -> None:
        self.rows = 0
        self._dtypes: dict[str, np.dtype[Any]] = {
            "ids": np.dtype(np.uint64),
            "rows": np.dtype((np.float32, (dimension,))),
            "versions": np.dtype(np.int64),
        }
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._run_rows = max(_SAMPLED, run_bytes // sum(dtype.itemsize for dtype in self._dtypes.values()))
        self._waiting: list[RowBlock] = []
        self._waiting_rows = 0
        self._runs = [0]  # the first row of each run, and the end of the last one
        self._samples: list[NDArray[np.uint64]] = []

    def __enter__(self) -> Self:
        """Opens the files."""
        self._files = {name: tempfile.TemporaryFile(dir=self._folder) for name in self._dtypes}  # noqa: SIM115
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Removes the files."""
        for file in self._files.values():
            file.close()

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each column."""
        return {name: ((self.rows, *dtype.shape), dtype.base) for name, dtype in self._dtypes.items()}

    def add(self, block: RowBlock) -> None:
        """Adds rows whose ids are not there yet; of each row the first D floats count."""
        self.rows += len(block)
        self._waiting.append(block)
        self._waiting_rows += len(block)
        if self._waiting_rows >= self._run_rows:
            self._end_run()

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """Yields a column in parts, in the order of the ids. No rows are added from then on."""
        if self._waiting_rows:
            self._end_run()
        for starts, ends in self._ranges():
            ids = self._read("ids", starts, ends)
            order = np.argsort(ids, kind="stable")  # timsort, which merges runs
            yield ids[order] if name == "ids" else self._read(name, starts, ends)[order]

    def _end_run(self) -> None:
        """Sorts the waiting rows, and writes them."""
        ids = np.concatenate([block.ids for block in self._waiting])
        order = np.argsort(ids)
        columns = {
            "ids": ids,
            "rows": np.concatenate([block.rows[:, : self._dtypes["rows"].shape[0]] for block in self._waiting]),
            "versions": np.concatenate([block.versions for block in self._waiting]),
        }
        self._waiting, self._waiting_rows = [], 0
        for name, values in columns.items():
            self._files[name].write(values[order].data)
        self._runs.append(self.rows)
        self._samples.append(ids[order[:: max(1, len(ids) // _SAMPLED)]])

    def _ranges(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yields the first and the end of the rows of each run that are in a range of ids, [runs] each."""
        bounds = np.sort(np.concatenate(self._samples or [np.empty(0, np.uint64)]))[_SAMPLED::_SAMPLED]
        places = np.empty((len(bounds) + 2, len(self._runs) - 1), np.int64)
        for run, (first, end) in enumerate(itertools.pairwise(self._runs)):
            ids = self._read("ids", np.array([first]), np.array([end]))
            places[0, run], places[-1, run] = first, end
            places[1:-1, run] = first + np.searchsorted(ids, bounds)
        yield from itertools.pairwise(places)

    def _read(self, name: str, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
        """Reads a column of these rows of the runs."""
        file, dtype = self._files[name], self._dtypes[name]
        values = np.empty(int((ends - starts).sum()), dtype)
        done = 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            part = values[done : done + end - start]
            file.seek(start * dtype.itemsize)
            if part.size and file.readinto(part.data.cast("B")) != part.nbytes:  # type: ignore[attr-defined]
                raise OSError(f"a temporary file in {self._folder} has lost rows")
            done += len(part)
        return values
