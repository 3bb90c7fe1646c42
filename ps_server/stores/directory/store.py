"""The tables of one shard in a checkpoint directory: rows in memory, what is committed outlives the process.

<directory>/<table>/table.pb                    its specification
<directory>/<table>/samples/<position>-<k>      the sample log, one file per entry
<directory>/<table>/shard-<i>-of-<n>/           what the server of shard i of n keeps
    history.json    epoch, cuts, committed checkpoints
    rows-<cut>      see row_files.py
    part-<cut>-<name>, dense
<directory>/shard-<i>-of-<n>.lock               held by that server as long as it runs
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from protos import common_pb2
from ps_server.core.shard import Shard
from ps_server.core.store import TableStore
from ps_server.stores.directory.cuts import DirectoryCuts
from ps_server.stores.directory.row_files import write_bytes
from ps_server.stores.directory.shard_folders import HISTORY, ShardFolders
from ps_server.stores.memory import MemoryPartials, MemoryRows, MemoryStore
from services.domain.batches import LogEntry
from services.domain.errors import FailedPrecondition
from services.domain.tables import TableSpec
from services.wire.tables import decode_table, encode_table


class DirectoryHistory:
    """A HistoryStore of one file."""

    def __init__(self, spec: TableSpec, folders: ShardFolders) -> None:
        self._width = spec.row_width
        self._folders = folders
        self._path = folders.own / HISTORY

    def load(self) -> bytes | None:
        self._folders.take_over(self._width)
        return _bytes_of(self._path)

    def save(self, data: bytes) -> None:
        write_bytes(self._path, data)


class DirectoryBlobs:
    """A BlobStore of one file per part, and one for the dense parameters."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dense = folder / "dense"

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        write_bytes(self._part(checkpoint, name), data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return _bytes_of(self._part(checkpoint, name))

    def checkpoints(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self._folder.glob("part-*-*[a-z]")}

    def drop_parts(self, checkpoint: int) -> None:
        for path in self._folder.glob(f"part-{checkpoint}-*"):
            path.unlink()

    def put_dense(self, data: bytes) -> None:
        write_bytes(self._dense, data)

    def get_dense(self) -> bytes | None:
        return _bytes_of(self._dense)

    def _part(self, checkpoint: int, name: str) -> Path:
        return self._folder / f"part-{checkpoint}-{name}"


class DirectoryLog:
    """A LogStore of one file per entry, named by its position and number of samples."""

    durable = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def last(self) -> LogEntry | None:
        return max(self._entries(), key=_order, default=None)

    def append(self, entry: LogEntry) -> None:
        write_bytes(self._path(entry), entry.batch)

    def read(self) -> Iterator[LogEntry]:
        for entry in sorted(self._entries(), key=_order):
            yield LogEntry(entry.position, entry.samples, self._path(entry).read_bytes())

    def trim(self, position: int) -> None:
        for entry in self._entries():
            if entry.end <= position and not entry.closes:
                self._path(entry).unlink()

    def clear(self) -> None:
        for entry in self._entries():
            self._path(entry).unlink()

    def _entries(self) -> list[LogEntry]:
        """Returns all entries without their batches, in no order."""
        if not self._folder.exists():
            return []
        names = (path.name.split("-") for path in self._folder.iterdir() if path.suffix != ".draft")
        return [LogEntry(int(position), int(samples)) for position, samples in names]

    def _path(self, entry: LogEntry) -> Path:
        return self._folder / f"{entry.position}-{entry.samples}"


class DirectoryStore(MemoryStore):
    """A Store in memory whose checkpoints are in a directory."""

    def __init__(self, directory: Path, shard: Shard) -> None:
        """Takes up the tables of the directory."""
        super().__init__()
        self._directory = directory
        self._shard = shard
        self._locks = ShardLocks(directory)
        for path in sorted(directory.glob("*/table.pb")):
            spec = decode_table(common_pb2.TableSpec.FromString(path.read_bytes()))
            self._tables[spec.name] = (spec, self._open(spec))

    def shards(self, table: str) -> int:
        return ShardFolders(self._directory / table, self._shard).current()

    def claim(self, *, exclusive: bool) -> None:  # noqa: ARG002 - a process that holds a lock is surely there
        self._locks.acquire(self._shard)

    def release(self) -> None:
        self._locks.release()

    def close(self) -> None:
        super().close()
        self.release()

    def _make(self, spec: TableSpec) -> TableStore:
        data = encode_table(spec).SerializeToString()
        write_bytes(self._directory / spec.name / "table.pb", data)
        return self._open(spec)

    def _open(self, spec: TableSpec) -> TableStore:
        folder = self._directory / spec.name
        folders = ShardFolders(folder, self._shard)
        rows = MemoryRows(spec)
        return TableStore(
            rows=rows,
            partials=MemoryPartials(spec.dimension),
            cuts=DirectoryCuts(rows, folders),
            history=DirectoryHistory(spec, folders),
            blobs=DirectoryBlobs(folders.own),
            log=DirectoryLog(folder / "samples"),
        )


class ShardLocks:
    """The locks that this process holds in a checkpoint directory. They end with the process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[BinaryIO] = []

    def acquire(self, shard: Shard) -> None:
        """Takes the lock of a shard.

        Raises:
            FailedPrecondition: another process holds it, or one of another number of shards.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        own = self._directory / f"shard-{shard.index}-of-{shard.count}.lock"
        self._held.append(self._lock(own))
        try:
            for path in self._directory.glob("shard-*.lock"):
                if not path.stem.endswith(f"-of-{shard.count}"):
                    self._lock(path).close()
        except FailedPrecondition:
            self.release()
            raise

    def release(self) -> None:
        """Lets go of the locks that keep other servers off the directory."""
        for file in self._held:
            file.close()
        self._held.clear()

    def _lock(self, path: Path) -> BinaryIO:
        file = path.open("ab")
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        file.close()
        raise FailedPrecondition(
            f"another process serves {path.stem} in checkpoint directory {self._directory}; stop it, or use another "
            "directory"
        )


def _bytes_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _order(entry: LogEntry) -> tuple[int, bool]:
    return entry.end, entry.closes
