"""One table of one shard: versioned reads and idempotent pushes over any store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.ps_server.core import gradients
from esd.ps_server.core.gradients import Arrival
from esd.ps_server.core.history import CheckpointHistory
from esd.ps_server.core.sample_log import SampleLog
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import BlobStore, TableStore
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.rows import GradientBlock, RowBlock, check_columns, check_distinct, check_versions
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import MAX_VERSION, at_birth, continues


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push.

    Attributes:
        stored: number of rows or gradients that were new.
        already_known: number that were repeated, and ignored.
        ids: uint64 [r], rows that can be read at `versions` (int64 [r]) now, stored by this push or an earlier one.
    """

    stored: int
    already_known: int
    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]


class Table:
    """The rows of one table, with its pending gradients, history, blobs and sample log. Thread-safe.

    Attributes:
        spec: the table.
        row_bytes: bytes of a row.
        history: its epochs and checkpoints.
        blobs: parts of its checkpoints, and the dense parameters of its model.
        samples: the log of the sample stream that trains it.
        frames: applies whole frames in one native call; None if the store has no such path.
        changed: receives the ids of rows that change; None: no reader follows the table.
    """

    def __init__(self, spec: TableSpec, store: TableStore, shard: Shard) -> None:
        """Opens the table's data in the store.

        Raises:
            FailedPrecondition: the stored data is damaged.
        """
        self.spec = spec
        self.row_bytes = spec.row_bytes
        self._store = store
        self._shard = shard
        self.history = CheckpointHistory(store, spec.name)
        self.blobs: BlobStore = store.blobs
        self.frames = store.frames(shard) if store.frames else None
        self.changed: native.ChangedRows | None = None
        self.samples = SampleLog(store.log, self.history, spec.name)
        store.partials.load()
        # Held from classifying a gradient until it is stored, so that the pending sum cannot change in between.
        self._gradients = threading.RLock()

    def read(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64] | None = None) -> RowBlock:
        """Returns the present rows.

        Args:
            ids: uint64 [r].
            wanted: int64 [r], versions; a row must be in the life of its version or a later one. None: any life will
                do. A row that was not trained in that life has the values of its birth: its initial values, even if an
                earlier life is stored, or the stored values, if the life continues an earlier one.
        """
        return self._born(self._store.rows.read(ids), wanted)

    def read_exact(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64]) -> tuple[RowBlock, NDArray[np.bool_]]:
        """Returns rows as `read` does, and bool [r], the rows with initial values, which it leaves out of the block."""
        return self._at_birth(self._store.rows.read(ids), wanted)

    def look_up(self, ids: NDArray[np.uint64], checkpoint: int = 0) -> RowBlock:
        """Returns the rows of these ids, uint64 [r], at present or at a checkpoint (0: at present).

        Raises:
            InvalidArgument: an id belongs to another shard.
            FailedPrecondition: the checkpoint is not kept.
        """
        self._shard.check(ids)
        if not checkpoint:
            return self.read(ids)
        with self.history.at_checkpoint(checkpoint) as later:
            # The rows come first: a row that changes after this read has its pre-image by the time pre-images are read.
            return self._born(self._store.cuts.as_of(self._store.rows.read(ids), checkpoint, later), None)

    def check_pull(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64], epoch: int = 0) -> None:
        """Checks the arguments of a pull.

        Raises:
            InvalidArgument: an id is repeated or belongs to another shard, a version is negative or too large, or the
                columns differ in length.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        check_columns(ids, versions=wanted)
        check_distinct(ids)
        check_versions(ids, wanted, lowest=0)
        self._shard.check(ids)
        self.history.check_epoch(epoch)

    def apply_at_once(self, frame: native.HeldFrame, waiting: native.WaitingRows, limit: int) -> native.Applied | None:
        """Applies a frame in one native call that never waits.

        The effect is the same as of `push_rows`, `push_gradients` and `check_pull`, with the first answer encoded.

        Args:
            frame: a frame for this table.
            waiting: the rows that pulls wait for; stored rows are announced to it.
            limit: the most rows of an answer.

        Returns:
            The result. If it is None or not good, the caller must apply the frame through the methods above: they wait
            for locks that are taken now, and their errors describe the fault of the frame.
        """
        if self.frames is None:
            return None
        with self.history.writing_at_once(frame.epoch) as may_write:
            if not may_write or not self._gradients.acquire(blocking=False):
                return None
            try:
                return self.frames.apply(frame, waiting, limit, self.changed)
            finally:
                self._gradients.release()

    def push_rows(self, block: RowBlock, epoch: int = 0) -> Pushed:
        """Stores the rows that are newer than the stored ones.

        Raises:
            InvalidArgument: a column has the wrong size, an id is repeated or is foreign, or a value is NaN.
            FailedPrecondition: the push would make pending partial gradients of a row void.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        block.validate(self.spec)
        self._shard.check(block.ids)
        with self.history.writing(epoch):
            self._discard_of_earlier_lives(block.ids, block.versions)
            self._refuse_voiding(block)
            stored = int(self._store.rows.write_newer(block).sum())
            self._note(block.ids)
        return Pushed(stored, len(block) - stored, block.ids, block.versions)

    def push_gradients(self, block: GradientBlock, epoch: int = 0) -> Pushed:
        """Keeps partial gradients, and trains the rows for which this is the last contribution.

        Raises:
            InvalidArgument: a column has the wrong size, an id is repeated or belongs to another shard, a value is NaN,
                or the sender is not among the contributors.
            FailedPrecondition: a gradient skips a version, or disagrees with the pending ones.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        block.validate(self.spec)
        self._shard.check(block.ids)
        with self.history.writing(epoch), self._gradients:
            self._discard_of_earlier_lives(block.ids, block.targets)
            gradients.discard_made(self._store, block.ids)
            arrivals = gradients.classify(self._store, block)
            waiting = arrivals == Arrival.WAITS
            if waiting.any():
                self._store.partials.add(block[waiting])
            last = block[arrivals == Arrival.COMPLETES]
            if len(last):
                gradients.complete(self._store, self.spec, last, self.read(last.ids, last.targets - 1).rows)
            made = ~waiting & (self._store.partials.splits(block.ids).targets == 0)
            self._note(block.ids[made])
        known = int((arrivals == Arrival.REPEATED).sum())
        return Pushed(len(block) - known, known, block.ids[made], block.targets[made])

    def forget(self, ids: NDArray[np.uint64], below: int, epoch: int) -> int:
        """Removes rows with versions below `below`, and their pending gradients; returns the number of removed rows.

        A row whose version is not below stays, because it is in a later life.

        Raises:
            InvalidArgument: an id is repeated or belongs to another shard, or `below` does not begin a life.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        check_distinct(ids)
        self._shard.check(ids)
        if not 0 < below <= MAX_VERSION or at_birth(np.array([below])) != below:
            raise InvalidArgument(f"below is {below}, but it must begin a life of rows: a multiple of 2^30")
        with self.history.writing(epoch):
            self._discard_of_earlier_lives(ids, np.full(len(ids), below))
            removed = self._store.rows.forget_older(ids, below)
            self._note(ids)
        return removed

    def restore(self, checkpoint: int, epoch: int, claimant: bytes) -> int:
        """Puts the rows back to a checkpoint (`CheckpointHistory.restore`); its readers begin anew."""
        try:
            return self.history.restore(checkpoint, epoch, claimant)
        finally:
            if self.changed is not None:
                self.changed.lose()

    def put_dense(self, data: bytes, epoch: int = 0) -> None:
        """Stores the dense parameters of the table's model.

        Raises:
            StaleEpoch: `epoch` is not the table's epoch.
            FailedPrecondition: the table is finished.
        """
        with self.history.writing(epoch):
            self.blobs.put_dense(data)

    def scan(self) -> Iterator[RowBlock]:
        """Yields every stored row, in unspecified order; rows pushed meanwhile may be missing."""
        return self._store.rows.scan()

    def stored_rows(self) -> int:
        """Returns the number of rows that were trained at least once."""
        return len(self._store.rows)

    def pending_gradients(self) -> int:
        """Returns the number of partial gradients that wait for their other contributors."""
        return len(self._store.partials)

    def pending_bytes(self) -> int:
        """Returns the bytes of this process's memory that the pending gradients take."""
        return self._store.partials.memory_bytes

    def _born(self, block: RowBlock, wanted: NDArray[np.int64] | None) -> RowBlock:
        """Gives rows that were not trained in the wanted life the values of their birth; returns the block."""
        block, initial = self._at_birth(block, wanted)
        spec, trained = self.spec, (~initial).astype(np.int64)
        native.initialise(block.ids, trained, block.rows, spec.dimension, spec.seed, spec.init_scale)
        return block

    def _at_birth(self, block: RowBlock, wanted: NDArray[np.int64] | None) -> tuple[RowBlock, NDArray[np.bool_]]:
        """Gives rows that were not trained in the wanted life the version of their birth.

        Returns the block, and bool [r], the rows that have their initial values then, and need not have them yet.
        """
        births = np.zeros_like(block.versions) if wanted is None else at_birth(wanted)
        unborn = block.versions < np.maximum(births, 1)
        initial = unborn & (~continues(births) | (block.versions == 0))
        block.versions[unborn] = births[unborn]
        return block, initial

    def _note(self, ids: NDArray[np.uint64]) -> None:
        """Notes rows after they were written: a reader that has their ids reads their new values.

        Rows that a push repeats are noted, too: the first attempt may have failed after the store had written them.
        """
        changed = self.changed
        if changed is not None:
            changed.add(ids)

    def _discard_of_earlier_lives(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        births = at_birth(versions)
        if births.any():  # otherwise all rows are in their first life, and a push of rows need not wait for the lock
            with self._gradients:
                gradients.discard_of_earlier_lives(self._store, ids, births)

    def _refuse_voiding(self, block: RowBlock) -> None:
        """Raises FailedPrecondition if a row of the push would reach a version for which gradients are pending."""
        targets = self._store.partials.splits(block.ids).targets
        at = np.flatnonzero((targets > 0) & (targets <= block.versions))
        if len(at):
            void = at[self._store.rows.versions(block.ids[at]) < targets[at]]
            if len(void):
                row = int(void[0])
                raise FailedPrecondition(
                    f"row {block.ids[row]} is pushed at version {block.versions[row]}, but partial gradients for its "
                    f"version {targets[row]} are pending"
                )
