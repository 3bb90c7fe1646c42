"""The memory store with a checkpoint directory: what is committed outlives the process.

<directory>/<table>/table.pb                    its specification
<directory>/<table>/samples/<position>-<k>      the sample log, see sample_logs
<directory>/<table>/shard-<i>-of-<n>/           what the server of shard i of n keeps
    history.json    epoch, cuts, committed checkpoints
    rows-<cut>      see row_files
    part-<cut>-<name>, dense
<directory>/shard-<i>-of-<n>.lock               held by that server as long as it runs
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from esd_native.rows import RowTable
from protos import common_pb2
from ps_server.core.shard import Shard
from ps_server.stores.memory import MemoryStore, MemoryTable, scan
from ps_server.stores.overlay import first_of_each
from ps_server.stores.row_files import chain_of, row_file, row_files, stored_rows, write_bytes, write_rows
from ps_server.stores.sample_logs import DirectoryLog
from ps_server.stores.shard_folders import ShardFolders
from ps_server.stores.shard_locks import ShardLocks
from services.domain.rows import RowBlock
from services.domain.tables import TableSpec
from services.wire.tables import decode_table, encode_table

_LONGEST_CHAIN = 8  # files to read for one checkpoint; then all rows are written again


class DirectoryTable(MemoryTable):
    """A MemoryTable that writes its cuts to files, changes only where it can."""

    def __init__(self, spec: TableSpec, folders: ShardFolders) -> None:
        """Writes nothing and reads nothing yet."""
        super().__init__(spec)
        self._folders = folders
        self._directory = folders.own
        self._cuts: set[int] = set()  # whose rows must stay on disk
        self.log = DirectoryLog(folders.own.parent / "samples")

    def load_history(self) -> bytes | None:
        self._folders.take_over(self._width)
        return self._read("history.json")

    def save_history(self, data: bytes) -> None:
        self._write("history.json", data)

    def reopen(self, cuts: Sequence[int]) -> bool:
        self._cuts = {cut for cut in cuts if cut}
        last = cuts[-1] if cuts else 0
        if last:
            self._load(last)
            self._undo[last] = RowTable(self._width)
        self._drop_files()  # what was not committed
        self._folders.drop_others()
        for draft in self._directory.glob("*.draft"):
            draft.unlink()
        return True

    def save(self, cut: int, earlier: int) -> tuple[int, int]:
        path = row_file(self._directory, cut)
        self._cuts.add(cut)
        if self._can_be_built_on(earlier):
            return write_rows(path, earlier, self._as_of(cut, self._undo[earlier]))
        everything = [self._rows, *(self._undo[each] for each in self._kept_since(cut))]
        return write_rows(path, 0, first_of_each(block for which in everything for block in self._as_of(cut, which)))

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        if self._undo:  # they are in memory
            return super().rows_at(cut, later)
        return stored_rows(self._directory, cut, self._width)

    def undo(self, cut: int) -> int:
        if cut in self._undo:
            return super().undo(cut)
        if cut not in self._cuts:  # never written: what came after it is undone with the cut before
            return 0
        self._rows = RowTable(self._width)
        self._load(cut)
        return len(self._rows)

    def forget(self, cut: int) -> None:
        super().forget(cut)
        self._cuts.discard(cut)
        self._drop_files()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._write(f"part-{checkpoint}-{name}", data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return self._read(f"part-{checkpoint}-{name}")

    def parts(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self._directory.glob("part-*-*[a-z]")}

    def drop_parts(self, checkpoint: int) -> None:
        for path in self._directory.glob(f"part-{checkpoint}-*"):
            path.unlink()

    def put_dense(self, data: bytes) -> None:
        self._write("dense", data)

    def get_dense(self) -> bytes | None:
        return self._read("dense")

    def _can_be_built_on(self, cut: int) -> bool:
        if cut not in self._undo or not row_file(self._directory, cut).exists():
            return False
        return len(chain_of(self._directory, cut)) < _LONGEST_CHAIN

    def _load(self, cut: int) -> None:
        for block in stored_rows(self._directory, cut, self._width):
            self._rows.overwrite(block.ids, block.versions, block.rows)

    def _as_of(self, cut: int, which: RowTable) -> Iterator[RowBlock]:
        """The rows that `which` names, as they were at a cut, while others write; version 0 where there was none."""
        for block in scan(which, self._scan_rows):
            with self._changes:
                versions, rows = self._rows.read(block.ids)
                for each in self._kept_since(cut):
                    old_versions, old_rows = self._undo[each].read(block.ids)
                    changed = old_versions > 0
                    versions[changed] = old_versions[changed] - 1
                    rows[changed] = old_rows[changed]
            yield RowBlock(block.ids, versions, rows)

    def _kept_since(self, cut: int) -> list[int]:
        """The generations of a cut and of later ones, the latest first."""
        return sorted((each for each in self._undo if each >= cut), reverse=True)

    def _drop_files(self) -> None:
        """Drops every file of rows that no cut builds on."""
        there = (cut for cut in self._cuts if row_file(self._directory, cut).exists())
        needed = {path for cut in there for path in chain_of(self._directory, cut)}
        for path in row_files(self._directory) - needed:
            path.unlink()

    def _write(self, name: str, data: bytes) -> None:
        write_bytes(self._directory / name, data)

    def _read(self, name: str) -> bytes | None:
        path = self._directory / name
        return path.read_bytes() if path.exists() else None


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

    def claim(self, *, alone: bool) -> None:  # noqa: ARG002 - one that holds a lock is surely there
        self._locks.acquire(self._shard)

    def close(self) -> None:
        super().close()
        self._locks.release()

    def _make(self, spec: TableSpec) -> MemoryTable:
        data = encode_table(spec).SerializeToString()
        write_bytes(self._directory / spec.name / "table.pb", data)
        return self._open(spec)

    def _open(self, spec: TableSpec) -> DirectoryTable:
        return DirectoryTable(spec, ShardFolders(self._directory / spec.name, self._shard))
