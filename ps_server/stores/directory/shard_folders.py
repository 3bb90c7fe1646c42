"""The folders of one table in a checkpoint directory: one per shard, and a set of them per number of shards.

When the number of shards changes, the new servers copy the last checkpoint from the old folders, shard by shard, and
begin an epoch later than any of the old ones. So the set in force is the one whose lowest epoch is the highest: a set
that was copied only in part has shards without a record, or with the record of an earlier time.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from esd.ps_server.core.history_record import Cut, HistoryRecord, resharded
from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.directory.disk import DiskFolder, disk_errors
from esd.ps_server.stores.directory.row_files import stored_rows, write_rows
from esd.ps_server.stores.folders import write_bytes
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.versions import trainings
from esd.services.runtime.whole_files import sync_folder

HISTORY = "history.json"


class ShardFolders:
    """The folders of one table, seen from one shard.

    Attributes:
        own: the folder of this shard, which may not exist yet.
    """

    def __init__(self, table: Path, shard: Shard) -> None:
        self._table = table
        self._shard = shard
        self.own = self._folder(shard.index, shard.count)

    def current(self) -> int:
        """Returns the number of shards of the set in force; 0 if no set is complete."""
        epochs = self._complete()
        return max(epochs, key=lambda count: min(epochs[count]), default=0)

    def take_over(self, width: int) -> None:
        """Copies this shard's rows of the last checkpoint into its folder, if another set is in force.

        Raises:
            FailedPrecondition: the checkpoint is damaged.
        """
        before = self.current()
        if before not in (0, self._shard.count):
            self._copy(before, width)

    def drop_others(self) -> None:
        """Removes the sets that are not in force, and unfinished copies. Only the first shard does so."""
        if self._shard.index == 0 and self.current() == self._shard.count:
            for path in self._table.glob("*shard-*-of-*"):
                if not path.match(f"shard-*-of-{self._shard.count}"):
                    shutil.rmtree(path)

    def _copy(self, before: int, width: int) -> None:
        folders = [self._folder(index, before) for index in range(before)]
        records = [_record(folder) for folder in folders]
        record = resharded(records, self._shard.index)
        record = replace(record, cuts=(), committed=record.committed[-1:], outdated_cuts=(), saved=None)
        cut = record.last.iteration
        draft = self._table / f"draft-of-{self.own.name}"
        shutil.rmtree(draft, ignore_errors=True)  # left by a process that died while it copied
        draft.mkdir(parents=True)
        if cut:
            counted = _Counted(self._own_rows(folders, cut, width))
            write_rows(DiskFolder(draft), cut, 0, counted)
            record = replace(record, cuts=(Cut(cut, counted.rows, counted.trainings),))
        if self._shard.index == 0:
            for path in (*folders[0].glob(f"part-{cut}-*"), *folders[0].glob("dense")):
                write_bytes(DiskFolder(draft), path.name, path.read_bytes())
        write_bytes(DiskFolder(draft), HISTORY, record.encode())
        # The old content of this folder belongs to an earlier checkpoint. It is removed once its replacement is on
        # disk.
        with disk_errors(self.own):
            shutil.rmtree(self.own, ignore_errors=True)
            draft.rename(self.own)
            sync_folder(self._table)

    def _own_rows(self, folders: list[Path], cut: int, width: int) -> Iterator[RowBlock]:
        for folder in folders:
            for block in stored_rows(DiskFolder(folder), cut, width):
                yield block[shard_of(block.ids, self._shard.count) == self._shard.index]

    def _complete(self) -> dict[int, list[int]]:
        """Returns the epochs of each complete set (all its shards have a record), by number of shards."""
        epochs: defaultdict[int, list[int]] = defaultdict(list)
        for path in self._table.glob(f"shard-*-of-*/{HISTORY}"):
            epochs[int(path.parent.name.rpartition("-")[2])].append(_record(path.parent).epoch)
        return {count: found for count, found in epochs.items() if len(found) == count}

    def _folder(self, index: int, count: int) -> Path:
        return self._table / f"shard-{index}-of-{count}"


def _record(folder: Path) -> HistoryRecord:
    path = folder / HISTORY
    return HistoryRecord.decode(path.read_bytes(), str(path))


class _Counted:
    """Blocks of rows, which are counted as they are iterated.

    Attributes:
        rows: number of rows so far.
        trainings: how often they were trained in their present lives, in total.
    """

    def __init__(self, blocks: Iterator[RowBlock]) -> None:
        self._blocks = blocks
        self.rows = 0
        self.trainings = 0

    def __iter__(self) -> Iterator[RowBlock]:
        for block in self._blocks:
            self.rows += len(block)
            self.trainings += int(np.sum(trainings(block.versions)))
            yield block
