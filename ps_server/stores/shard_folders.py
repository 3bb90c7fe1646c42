"""The folders of one table in a checkpoint directory: one per shard, and a set of them per number of shards.

Whoever serves the table with another number of shards takes the last checkpoint over from the folders before, shard by
shard, and begins a later epoch than any of them. So the set in force is the one whose least epoch is the highest: one
that was taken over in part has shards without a record, or with one of long ago.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ps_server.core.record import Cut, Record, shared_out
from ps_server.core.shard import Shard
from ps_server.stores.row_files import row_file, stored_rows, write_bytes, write_rows
from services.domain.ids import shard_of
from services.domain.rows import RowBlock

_RECORD = "history.json"


class ShardFolders:
    """The folders of one table, seen from one shard.

    Attributes:
        own: this shard's; it may not be there yet.
    """

    def __init__(self, table: Path, shard: Shard) -> None:
        self._table = table
        self._shard = shard
        self.own = self._folder(shard.index, shard.count)

    def current(self) -> int:
        """The number of shards of the set in force; 0 if there is none."""
        epochs = self._complete()
        return max(epochs, key=lambda count: min(epochs[count]), default=0)

    def take_over(self, width: int) -> None:
        """Fills the shard's folder with its rows of the last checkpoint, if another set is in force.

        Raises:
            FailedPrecondition: the checkpoint is damaged.
        """
        others = {count: epochs for count, epochs in self._complete().items() if count != self._shard.count}
        before = max(others, key=lambda count: min(others[count]), default=0)
        if before and max(others[before]) >= self._epoch(self.own):
            self._copy(before, width)

    def drop_others(self) -> None:
        """Drops sets that are not in force any more; the first shard's business."""
        if self._shard.index == 0 and self.current() == self._shard.count:
            for path in self._table.glob("shard-*-of-*"):
                if not path.name.endswith(f"-of-{self._shard.count}"):
                    shutil.rmtree(path)

    def _copy(self, before: int, width: int) -> None:
        folders = [self._folder(index, before) for index in range(before)]
        records = [_record(folder) for folder in folders]
        record = shared_out(records, self._shard.index)
        record = replace(record, cuts=(), committed=record.committed[-1:], outdated=())
        cut = record.last.cut
        if self.own.exists():
            shutil.rmtree(self.own)
        self.own.mkdir(parents=True)
        if cut:
            counted = Counted(self._own_rows(folders, cut, width))
            write_rows(row_file(self.own, cut), 0, counted)
            record = replace(record, cuts=(Cut(cut, counted.rows, counted.versions),))
        if self._shard.index == 0:
            for path in (*folders[0].glob(f"part-{cut}-*"), *folders[0].glob("dense")):
                write_bytes(self.own / path.name, path.read_bytes())
        write_bytes(self.own / _RECORD, record.encode())

    def _own_rows(self, folders: list[Path], cut: int, width: int) -> Iterator[RowBlock]:
        for folder in folders:
            for block in stored_rows(folder, cut, width):
                yield block[shard_of(block.ids, self._shard.count) == self._shard.index]

    def _complete(self) -> dict[int, list[int]]:
        """The epochs of the sets of which every shard has its record, by number of shards."""
        epochs: defaultdict[int, list[int]] = defaultdict(list)
        for path in self._table.glob(f"shard-*-of-*/{_RECORD}"):
            epochs[int(path.parent.name.rpartition("-")[2])].append(self._epoch(path.parent))
        return {count: found for count, found in epochs.items() if len(found) == count}

    @staticmethod
    def _epoch(folder: Path) -> int:
        return _record(folder).epoch if (folder / _RECORD).exists() else -1

    def _folder(self, index: int, count: int) -> Path:
        return self._table / f"shard-{index}-of-{count}"


def _record(folder: Path) -> Record:
    path = folder / _RECORD
    return Record.decode(path.read_bytes(), str(path))


class Counted:
    """Blocks of rows, with their totals once they have been gone through."""

    def __init__(self, blocks: Iterator[RowBlock]) -> None:
        self._blocks = blocks
        self.rows = 0
        self.versions = 0

    def __iter__(self) -> Iterator[RowBlock]:
        for block in self._blocks:
            self.rows += len(block)
            self.versions += int(np.sum(block.versions))
            yield block
