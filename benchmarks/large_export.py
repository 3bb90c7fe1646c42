"""The memory of a large table's export and loading: `python -m benchmarks.large_export`.

Sorts the rows of a table of 20 GB as an export does, writes them to a model's folder, loads the folder with `esd.load`
and looks rows up. The ids are real; all values are 0, so that they take no room: files have holes in their place. Every
10 ms the memory that is the process's own (RssAnon) is read; pages of mapped files are the kernel's, which takes them
back when memory is short.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

import esd
from esd.model.files import CONFIG, FORMAT, FolderWriter, HashedFile, new_folder
from esd.model.sorted_rows import SortedRows
from esd.model.table import write_table
from esd.run.options import RunOptions
from esd.services.domain.rows import RowBlock
from esd.services.wire.trained_models import describe_model

_DIMENSION = 256
_BLOCK_ROWS = 2**10  # as a parameter server scans a table: a MiB
_ODD = 0x9E3779B97F4A7C15  # times which all numbers below 2^64 are distinct, and in no order
_LOOKED_UP = 100_000
_PAUSE_SECONDS = 0.01


class Holes:
    """A file in which zeros are skipped when they are written, and so take no room.

    Args:
        file: a new one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._end = 0

    def write(self, content: bytes | memoryview) -> int:
        """Appends bytes."""
        values = np.frombuffer(content, np.uint8)
        if values.any():
            os.pwrite(self._file.fileno(), content, self._end)
        self._end += values.size
        os.ftruncate(self._file.fileno(), self._end)
        return values.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class SparselySorted(SortedRows):
    """SortedRows whose files have holes."""

    def __enter__(self) -> Self:
        """Opens the files."""
        super().__enter__()
        self._files = {name: Holes(file) for name, file in self._files.items()}  # type: ignore[misc]
        return self


class SparseWriter(FolderWriter):
    """A FolderWriter whose files have holes."""

    @contextmanager
    def open(self, name: str) -> Iterator[HashedFile]:
        """Opens a new file below the folder."""
        with super().open(name) as file:
            file._file = Holes(file._file)  # type: ignore[assignment]  # noqa: SLF001 - a measurement from inside
            yield file


class Peak:
    """The most memory of its own that the process has in the block, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        """Begins to watch."""
        self.seconds = -time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Ends the watch."""
        self._over.set()
        self._thread.join()
        self.seconds += time.perf_counter()

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            status = Path("/proc/self/status").read_text()
            self.bytes = max(self.bytes, 1024 * int(status.partition("RssAnon:")[2].split()[0]))


def blocks(rows: int, width: int) -> Iterator[RowBlock]:
    """Yields the rows of a table in the blocks of a scan."""
    values = np.zeros((_BLOCK_ROWS, width), np.float32)
    for first in range(0, rows, _BLOCK_ROWS):
        numbers = np.arange(first, min(rows, first + _BLOCK_ROWS), dtype=np.uint64)
        yield RowBlock(numbers * np.uint64(_ODD), np.ones(len(numbers), np.int64), values[: len(numbers)])


def measure(size: int, place: Path) -> dict[str, float]:
    """Exports and loads a table of `size` bytes."""
    options = RunOptions(data="flights", model="wdl", dim=_DIMENSION)
    dataset = options.open(1)
    job = options.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    table, rows = job.table, size // (4 * _DIMENSION)
    with Peak() as export, new_folder(place / "model") as plain:
        folder = SparseWriter(plain.path)
        with SparselySorted(table.dimension, folder.path) as sorted_rows:
            for block in blocks(rows, table.row_width):
                sorted_rows.add(block)
            write_table(folder, table, sorted_rows)
        folder.write(CONFIG, json.dumps({"format": FORMAT, "model": describe_model(job)}).encode())
        plain._digests.update(folder._digests)  # noqa: SLF001
    numbers = np.random.default_rng(1).integers(0, rows, _LOOKED_UP, np.uint64)
    with Peak() as load:
        found = esd.load(place / "model").table().look_up(numbers * np.uint64(_ODD))
    assert not found.any()  # noqa: S101 - every row was found, or it would have its initial values
    files = [path for path in (place / "model").rglob("*") if path.is_file()]
    return {
        "rows": rows,
        "gigabytes": sum(path.stat().st_size for path in files) / 1e9,
        "gigabytes_on_disk": sum(path.stat().st_blocks for path in files) * 512 / 1e9,
        "export_seconds": export.seconds,
        "export_megabytes": export.bytes / 1e6,
        "load_seconds": load.seconds,
        "load_megabytes": load.bytes / 1e6,
    }


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_export", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the values of the table")
    parser.add_argument("--folder", type=Path, default=None, help="of temporary files, some of which are real")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        print(json.dumps(measure(int(arguments.gigabytes * 1e9), Path(place))))


if __name__ == "__main__":
    main()
