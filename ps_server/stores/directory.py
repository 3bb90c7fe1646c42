"""The memory store with a checkpoint directory: what is committed outlives the process.

<directory>/shard-<i>-of-<n>/<table>/table.pb       its specification
history.json   epoch, cuts, committed checkpoint
rows-<cut>     see row_files
part-<cut>-<name>, dense
samples/<position>-<k>  the sample log, see sample_logs
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from esd_native.rows import RowTable
from protos import common_pb2
from ps_server.core.blocks import RowBlock
from ps_server.core.shard import Shard
from ps_server.stores.memory import MemoryStore, MemoryTable, scan
from ps_server.stores.row_files import earlier_cut, read_rows, verify, write_file, write_rows
from ps_server.stores.sample_logs import DirectoryLog
from services.domain.tables import TableSpec
from services.wire.tables import decode_table, encode_table

_LONGEST_CHAIN = 8  # files to read for one checkpoint; then all rows are written again


class DirectoryTable(MemoryTable):
    """A MemoryTable that writes its cuts to files, changes only where it can."""

    def __init__(self, spec: TableSpec, directory: Path) -> None:
        """Takes up what the directory holds; `reopen` reads the rows."""
        super().__init__(spec)
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._write("table.pb", encode_table(spec).SerializeToString())
        self.log = DirectoryLog(directory / "samples")

    def reopen(self, cut: int) -> bool:
        if cut:
            for path in reversed(self._chain(cut)):
                verify(path)
                for block in read_rows(path, self._width):
                    self._rows.overwrite(block.ids, block.versions, block.rows)
            self._undo[cut] = RowTable(self._width)
        self._drop_files_except({cut} if cut else set())  # what was not committed
        return True

    def save(self, cut: int) -> tuple[int, int]:
        path = self._rows_of(cut)
        if path.exists():
            return 0, 0
        earlier = max((each for each in self._undo if each < cut and self._rows_of(each).exists()), default=0)
        if earlier and len(self._chain(earlier)) >= _LONGEST_CHAIN:
            earlier = 0
        changed = self._undo[earlier] if earlier else self._rows
        return write_rows(path, earlier, self._as_of(cut, changed))

    def load_history(self) -> bytes | None:
        return self._read("history.json")

    def save_history(self, data: bytes) -> None:
        self._write("history.json", data)

    def forget_undo(self, cut: int) -> None:
        super().forget_undo(cut)
        self._drop_files_except(set(self._undo))

    def undo(self, cut: int) -> int:
        changed = super().undo(cut)
        if self._undo and cut > min(self._undo):  # that cut is gone back over, and its name may come again
            self._rows_of(cut).unlink(missing_ok=True)
        return changed

    def clear(self) -> None:
        super().clear()
        for path in self._directory.glob("rows-*"):
            path.unlink()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._write(f"part-{checkpoint}-{name}", data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return self._read(f"part-{checkpoint}-{name}")

    def drop_parts(self, checkpoint: int) -> None:
        for path in self._directory.glob(f"part-{checkpoint}-*"):
            path.unlink()

    def put_dense(self, data: bytes) -> None:
        self._write("dense", data)

    def get_dense(self) -> bytes | None:
        return self._read("dense")

    def _as_of(self, cut: int, which: RowTable) -> Iterator[RowBlock]:
        """The rows that `which` names, as they were at a cut; those that were not there then are left out."""
        for block in scan(which, self._scan_rows):
            with self._changes:
                versions, rows = self._rows.read(block.ids)
                old_versions, old_rows = self._undo[cut].read(block.ids)
            changed = old_versions > 0
            versions[changed] = old_versions[changed] - 1
            rows[changed] = old_rows[changed]
            there = versions > 0
            yield RowBlock(block.ids[there], versions[there], rows[there])

    def _drop_files_except(self, cuts: set[int]) -> None:
        """Drops every file of rows that none of these cuts builds on."""
        needed = {path for cut in cuts if self._rows_of(cut).exists() for path in self._chain(cut)}
        for path in self._directory.glob("rows-*"):
            if path not in needed:
                path.unlink()

    def _chain(self, cut: int) -> list[Path]:
        """The files of a cut, the latest first."""
        paths = []
        while cut:
            paths.append(self._rows_of(cut))
            cut = earlier_cut(paths[-1])
        return paths

    def _rows_of(self, cut: int) -> Path:
        return self._directory / f"rows-{cut}"

    def _write(self, name: str, data: bytes) -> None:
        write_file(self._directory / name, lambda file: bool(file.write(data)))

    def _read(self, name: str) -> bytes | None:
        path = self._directory / name
        return path.read_bytes() if path.exists() else None


class DirectoryStore(MemoryStore):
    """A Store in memory whose checkpoints are in a directory."""

    def __init__(self, directory: Path, shard: Shard) -> None:
        """Takes up the tables of the directory."""
        super().__init__()
        self._place = directory / f"shard-{shard.index}-of-{shard.count}"
        for path in sorted(self._place.glob("*/table.pb")):
            spec = decode_table(common_pb2.TableSpec.FromString(path.read_bytes()))
            self._tables[spec.name] = (spec, self._make(spec))

    def _make(self, spec: TableSpec) -> MemoryTable:
        return DirectoryTable(spec, self._place / spec.name)
