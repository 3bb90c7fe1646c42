"""The tables of one shard with a checkpoint directory: rows are in memory, committed checkpoints outlive the process.

<directory>/<table>/table.pb                    its specification
<directory>/<table>/samples/<position>-<k>      the sample log, one file per entry
<directory>/<table>/shard-<i>-of-<n>/           the files of the server of shard i of n
    history.json    epoch, cuts, committed checkpoints
    rows-<cut>      see row_files.py
    part-<cut>-<name>, dense
<directory>/shard-<i>-of-<n>.lock               held by this server while it runs
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError

from esd.protos import common_pb2
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost, TableStore
from esd.ps_server.stores.directory.blobs import FileBlobs
from esd.ps_server.stores.directory.cuts import FileCuts
from esd.ps_server.stores.directory.disk import DiskFolder, disk_errors
from esd.ps_server.stores.directory.sample_log import FileLog
from esd.ps_server.stores.directory.shard_folders import HISTORY, ShardFolders
from esd.ps_server.stores.folders import read_bytes, write_bytes
from esd.ps_server.stores.memory import MemoryFrames, MemoryPartials, MemoryRows, MemoryStore
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.tables import TableSpec
from esd.services.runtime.whole_files import DRAFT, make_folder
from esd.services.wire.tables import decode_table, encode_table

_log = logging.getLogger(__name__)

_SPEC = "table.pb"


class DirectoryHistory:
    """A HistoryStore of one file."""

    def __init__(self, spec: TableSpec, folder: Path, folders: ShardFolders) -> None:
        self._spec = spec
        self._folder = folder
        self._folders = folders
        self._own = DiskFolder(folders.own)

    def load(self) -> bytes | None:
        self._folders.take_over(self._spec.row_width)
        return read_bytes(self._own, HISTORY)

    def save(self, data: bytes) -> None:
        # The folder may have been removed while the server ran; the record is worth nothing without the specification.
        if not (self._folder / _SPEC).exists():
            write_spec(self._folder, self._spec)
        write_bytes(self._own, HISTORY, data)


class DirectoryStore(MemoryStore):
    """A Store in memory whose checkpoints are in a directory."""

    def __init__(self, directory: Path, shard: Shard) -> None:
        """Opens the tables of the directory."""
        super().__init__()
        self._directory = directory
        self._shard = shard
        self._locks = ShardLocks(directory)
        self.loaded_bytes = 0
        self._lost: str | None = None  # the reason if this server may not use the directory any more
        for path in sorted(directory.glob(f"*/{_SPEC}")):
            spec = read_spec(path)
            self._tables[spec.name] = (spec, self._open(spec))

    def shards(self, table: str) -> int:
        return ShardFolders(self._directory / table, self._shard).current()

    def claim(self, *, exclusive: bool) -> None:  # noqa: ARG002 - a lock is held by live processes only, so no wait helps
        self._locks.acquire(self._shard)
        own = f"shard-{self._shard.index}-of-{self._shard.count}"
        for folder in (own, "samples") if self._shard.index == 0 else (own,):
            for draft in self._directory.glob(f"*/{folder}/*{DRAFT}"):  # left by a process that died while it wrote
                DiskFolder(draft.parent).remove(draft.name)

    def ping(self) -> None:
        if self._lost is not None:
            raise StoreLost(self._lost)
        if not self._locks.hold():
            _log.error(
                "checkpoint directory %s was removed or replaced: the checkpoints and samples in it are gone. The next "
                "checkpoint is whole; until it is committed a restart loses everything",
                self._directory,
            )
            self._locks.release()
            try:
                self._locks.acquire(self._shard)
            except FailedPrecondition as error:
                self._lost = f"checkpoint directory {self._directory} was taken from this parameter server: {error}"
                raise StoreLost(self._lost) from error

    def release(self) -> None:
        self._locks.release()

    def close(self) -> None:
        super().close()
        self.release()

    def _make(self, spec: TableSpec) -> TableStore:
        write_spec(self._directory / spec.name, spec)
        return self._open(spec)

    def _open(self, spec: TableSpec) -> TableStore:
        folder = self._directory / spec.name
        folders = ShardFolders(folder, self._shard)
        rows, partials = MemoryRows(spec), MemoryPartials(spec.dimension)
        return TableStore(
            rows=rows,
            partials=partials,
            cuts=FileCuts(rows, DiskFolder(folders.own), self._count_loaded, folders.drop_others),
            history=DirectoryHistory(spec, folder, folders),
            blobs=FileBlobs(DiskFolder(folders.own)),
            log=FileLog(DiskFolder(folder / "samples")),
            frames=lambda shard: MemoryFrames(spec, shard, rows, partials),
        )

    def _count_loaded(self, size: int) -> None:
        self.loaded_bytes += size


class ShardLocks:
    """The locks that this process holds in a checkpoint directory. They end with the process.

    A server holds the lock of its shard, and checks that no server of another number of shards holds one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[BinaryIO] = []

    def acquire(self, shard: Shard) -> None:
        """Takes the lock of a shard.

        Raises:
            FailedPrecondition: another process serves this shard, or a shard of a set with another number of shards.
        """
        with disk_errors(self._directory):
            make_folder(self._directory)
        own = self._directory / f"shard-{shard.index}-of-{shard.count}.lock"
        self._held.append(self._lock(own))
        try:
            for path in self._directory.glob("shard-*.lock"):
                if not path.stem.endswith(f"-of-{shard.count}"):
                    self._lock(path).close()
        except FailedPrecondition:
            self.release()
            raise

    def hold(self) -> bool:
        """Returns whether the held locks are still the files that other servers would lock.

        Raises:
            Unavailable: the directory cannot be read.
            Unavailable: the directory cannot be looked at.
        """
        for file in self._held:
            try:
                there = Path(file.name).stat()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise Unavailable(
                    f"{file.name}: {error.strerror}; look at the checkpoint directory and its disk"
                ) from error
            if not os.path.samestat(os.fstat(file.fileno()), there):
                return False
        return True

    def release(self) -> None:
        """Releases the locks, so that other servers may use the directory."""
        for file in self._held:
            file.close()
        self._held.clear()

    def _lock(self, path: Path) -> BinaryIO:
        with disk_errors(path):
            file = path.open("ab")
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        file.close()
        raise FailedPrecondition(
            f"another process serves {path.stem} in checkpoint directory {self._directory}; stop it, or use another "
            "directory"
        )


def write_spec(folder: Path, spec: TableSpec) -> None:
    """Writes the specification of a table to its folder."""
    write_bytes(DiskFolder(folder), _SPEC, encode_table(spec).SerializeToString())


def read_spec(path: Path) -> TableSpec:
    """Reads the specification of a table. Raises FailedPrecondition if it is damaged."""
    try:
        return decode_table(common_pb2.TableSpec.FromString(read_bytes(DiskFolder(path.parent), path.name) or b""))
    except (DecodeError, InvalidArgument) as error:
        raise FailedPrecondition(
            f"{path} is damaged: it holds no specification of a table ({error}). Give the checkpoint directory its "
            "data back, or begin anew with another one"
        ) from error
