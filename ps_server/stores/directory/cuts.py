"""The cuts of a table whose rows are in memory and whose checkpoints are files.

A file holds only the rows that have changed since the last checkpoint, if the cut can be built on that one. So files
form a chain, which later checkpoints share. A cut whose chain would hold many rows that have changed again begins a new
chain with all rows.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from esd.native.rows import PreImages
from esd.ps_server.stores.directory.row_files import (
    chain_of,
    row_file,
    row_files,
    rows_in,
    stored_changes,
    stored_rows,
    verified_chain,
    write_rows,
)
from esd.ps_server.stores.folders import Folder
from esd.ps_server.stores.memory import MemoryCuts, MemoryRows
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import RowBlock

_log = logging.getLogger(__name__)

_MOST_FILES = 64  # of one checkpoint
_MOST_COPIES = 1.5  # rows in the files of one checkpoint, for each row of the table


class FileCuts(MemoryCuts):
    """A CutStore with pre-images in memory for the cuts of this process, and files for cuts of earlier processes.

    Args:
        rows: of the table.
        folder: of the files.
        seen: gets the bytes of each piece of a file that is loaded.
        resumed: called when the rows of the last cut are loaded.
    """

    def __init__(
        self, rows: MemoryRows, folder: Folder, seen: Callable[[int], object], resumed: Callable[[], None]
    ) -> None:
        super().__init__(rows)
        self._seen = seen
        self._folder = folder
        self._resumed = resumed
        self._saved: set[int] = set()  # cuts whose rows must stay on disk

    def resume(self, cuts: Sequence[int], saved: int) -> bool:
        self._saved = {cut for cut in (*cuts, saved) if cut}
        last = cuts[-1] if cuts else 0
        if last:
            try:
                self._load(last)
            except FailedPrecondition as error:
                raise FailedPrecondition(
                    f"checkpoint {last} cannot be read: {error}; {self._way_out(cuts[:-1])}"
                ) from error
            self._rows.pre_images[last] = PreImages(self._rows.width)
        self._drop_files()  # of cuts that were not committed
        self._resumed()
        return True

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:
        self._saved.add(cut)
        rows = self._rows
        if not self._can_be_built_on(base, sum(map(len, rows.kept_between(base, cut)))):
            return write_rows(self._folder, cut, 0, rows.all_as_of(cut))
        changes = (rows.as_of(cut, ids) for ids in rows.changed_between(base, cut))
        size = write_rows(self._folder, cut, base, changes)[1]
        return len(rows.pre_images[earlier]), size

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

    def _can_be_built_on(self, cut: int, changed: int) -> bool:
        """Returns whether a file may hold only the changes since this cut, which are so many rows."""
        if cut not in self._rows.pre_images:
            return False
        try:
            files = chain_of(self._folder, cut)
        except FailedPrecondition:  # a file of its chain is missing
            return False
        most = _MOST_COPIES * len(self._rows) - changed
        return len(files) < _MOST_FILES and sum(rows_in(self._folder, name, self._rows.width) for name in files) <= most

    def _load(self, cut: int) -> None:
        """Loads the rows of a cut. Raises FailedPrecondition if a file is damaged, before any row is changed."""
        blocks = stored_changes(self._folder, cut, self._rows.width, self._seen)  # verifies all files before it returns
        self._rows.clear()
        for block in blocks:
            self._rows.rows.overwrite(block.ids, block.versions, block.rows)

    def _way_out(self, others: Sequence[int]) -> str:
        """Returns the advice for a checkpoint that is damaged, when these others are kept."""
        for cut in reversed(others):
            with suppress(FailedPrecondition):
                verified_chain(self._folder, cut)
                return f"`esd checkpoint restore {cut}` goes back to the one before"
        return "no other one can be read: begin anew with another checkpoint directory"

    def _drop_files(self) -> None:
        """Removes each file that no saved cut builds on; removes none if a chain of files cannot be followed."""
        there = (cut for cut in self._saved if self._folder.size(row_file(cut)) is not None)
        try:
            needed = {name for cut in there for name in chain_of(self._folder, cut)}
        except FailedPrecondition as error:
            _log.warning("a kept checkpoint cannot be restored, so no file is removed: %s", error)
            return
        for name in row_files(self._folder) - needed:
            self._folder.remove(name)
