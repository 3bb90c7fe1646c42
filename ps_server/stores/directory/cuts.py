"""The cuts of a table whose rows are in memory and whose checkpoints are files.

A file holds only the rows that changed since an earlier cut, if the cut can be built on that one. The earlier cut is
the last but one (ps_server/core/history.py decides), so the checkpoints form two chains of files, and two neighbours
never share a file.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from esd.native.rows import RowTable
from esd.ps_server.stores.directory.disk import remove
from esd.ps_server.stores.directory.row_files import chain_of, row_file, row_files, stored_rows, write_rows
from esd.ps_server.stores.directory.shard_folders import ShardFolders
from esd.ps_server.stores.memory import MemoryCuts, MemoryRows
from esd.ps_server.stores.row_streams import SeenIds, first_of_each, scan
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import RowBlock

_log = logging.getLogger(__name__)

_LONGEST_CHAIN = 8  # most files of one checkpoint; the next file then holds all rows again


class DirectoryCuts(MemoryCuts):
    """A CutStore with pre-images in memory for the cuts of this process, and files for cuts of earlier processes."""

    def __init__(self, rows: MemoryRows, folders: ShardFolders) -> None:
        """Touches no file yet."""
        super().__init__(rows)
        self._folders = folders
        self._folder = folders.own
        self._saved: set[int] = set()  # cuts whose rows must stay on disk

    def resume(self, cuts: Sequence[int], saved: int) -> bool:
        self._saved = {cut for cut in (*cuts, saved) if cut}
        last = cuts[-1] if cuts else 0
        if last:
            try:
                self._load(last)
            except FailedPrecondition as error:
                way_out = (
                    f"`esd checkpoint restore {cuts[-2]}` goes back to the one before"
                    if len(cuts) > 1
                    else ("no other one is kept: begin anew with another checkpoint directory")
                )
                raise FailedPrecondition(f"checkpoint {last} cannot be read: {error}; {way_out}") from error
            self._rows.pre_images[last] = RowTable(self._rows.width)
        self._drop_files()  # of cuts that were not committed
        self._folders.drop_others()
        return True

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:
        path = row_file(self._folder, cut)
        self._saved.add(cut)
        pre_images = self._rows.pre_images
        if self._can_be_built_on(base):
            changed = len(pre_images[earlier])
            return changed, write_rows(path, base, self._changed_since(base, cut))[1]
        everything = [self._rows.rows, *(pre_images[generation] for generation in self._generations_since(cut))]
        return write_rows(path, 0, first_of_each(block for named in everything for block in self._as_of(cut, named)))

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        if self._rows.pre_images:  # the rows are in memory
            return super().rows_at(cut, later)
        return stored_rows(self._folder, cut, self._rows.width)

    def put_back(self, cuts: Sequence[int]) -> int:
        if cuts[0] in self._rows.pre_images:
            return super().put_back(cuts)
        if cuts[0] not in self._saved:  # `resume` was not called: the rows are in files only, and stay there
            return 0
        self._load(cuts[0])
        self._rows.pre_images.clear()  # they belong to the rows before
        return len(self._rows)

    def drop(self, cut: int) -> None:
        super().drop(cut)
        self._saved.discard(cut)
        self._drop_files()

    def _can_be_built_on(self, cut: int) -> bool:
        """Returns whether a file may hold only the changes since this cut."""
        if cut not in self._rows.pre_images:
            return False
        try:
            return len(chain_of(self._folder, cut)) < _LONGEST_CHAIN
        except FailedPrecondition:  # a file of its chain is missing
            return False

    def _changed_since(self, base: int, cut: int) -> Iterator[RowBlock]:
        """Yields the rows that changed between two cuts, as of the later one; version 0 for a removed row."""
        seen = SeenIds()
        for generation in self._generations_since(base):
            if generation < cut:
                for block in self._as_of(cut, self._rows.pre_images[generation]):
                    yield block[seen.add(block.ids)]

    def _load(self, cut: int) -> None:
        """Loads the rows of a cut. Raises FailedPrecondition if a file is damaged, before any row is changed."""
        blocks = stored_rows(self._folder, cut, self._rows.width)  # verifies all files before it returns
        self._rows.clear()
        for block in blocks:
            self._rows.rows.overwrite(block.ids, block.versions, block.rows)

    def _as_of(self, cut: int, named: RowTable) -> Iterator[RowBlock]:
        """Yields the rows of `named` as they were at a cut; version 0 where the row did not exist. Writes may run."""
        for block in scan(named, self._rows.rows_per_block):
            with self._rows.changing:
                versions, rows = self._rows.rows.read(block.ids)
                for generation in self._generations_since(cut):
                    old_versions, old_rows = self._rows.pre_images[generation].read(block.ids)
                    changed = old_versions > 0
                    versions[changed] = old_versions[changed] - 1
                    rows[changed] = old_rows[changed]
            yield RowBlock(block.ids, versions, rows)

    def _generations_since(self, cut: int) -> list[int]:
        """Returns the generations of pre-images of this cut and of later ones, the latest first."""
        return sorted((generation for generation in self._rows.pre_images if generation >= cut), reverse=True)

    def _drop_files(self) -> None:
        """Removes each file that no saved cut builds on; removes none if a chain of files cannot be followed."""
        there = (cut for cut in self._saved if row_file(self._folder, cut).exists())
        try:
            needed = {path for cut in there for path in chain_of(self._folder, cut)}
        except FailedPrecondition as error:
            _log.warning("a kept checkpoint cannot be restored, so no file is removed: %s", error)
            return
        for path in row_files(self._folder) - needed:
            remove(path)
