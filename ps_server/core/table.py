"""One table of one shard: versioned reads and idempotent pushes over any store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd_native import rows as native
from ps_server.core import gradients
from ps_server.core.gradients import Arrival
from ps_server.core.history import History
from ps_server.core.sample_log import LogEntry, SampleLog
from ps_server.core.shard import Shard
from ps_server.core.store import TableStore
from services.domain.errors import FailedPrecondition, InvalidArgument
from services.domain.rows import GradientBlock, RowBlock, check_columns, check_distinct, check_versions
from services.domain.tables import TableSpec
from services.domain.versions import MAX_VERSION, at_birth


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        stored: rows or gradients that were new.
        already_known: repeated ones, ignored.
        ids: uint64 [r], rows that can be read at `versions` (int64 [r]) now, whoever stored them.
    """

    stored: int
    already_known: int
    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]


class Table:
    """Rows of one table. Thread-safe.

    Attributes:
        spec: the table.
        history: its epochs and checkpoints.
    """

    def __init__(self, spec: TableSpec, store: TableStore, shard: Shard) -> None:
        self.spec = spec
        self._store = store
        self._shard = shard
        self.history = History(store, spec.name)
        self._log = SampleLog(store.log, spec.name)
        # What is pending must not change between looking at a gradient and keeping it.
        self._gradients = threading.RLock()

    def read(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64] | None = None) -> RowBlock:
        """The rows as they are now, in the lives that the versions `wanted` are of, int64 [r], or in later ones.

        A row that was not trained in that life has its initial values, whatever is stored of an earlier one. Without
        `wanted`, any life will do.
        """
        block = self._store.read(ids)
        births = np.zeros_like(block.versions) if wanted is None else at_birth(wanted)
        unborn = block.versions < np.maximum(births, 1)
        block.versions[unborn] = 0
        spec = self.spec
        native.initialise(block.ids, block.versions, block.rows, spec.dimension, spec.seed, spec.init_scale)
        block.versions[unborn] = births[unborn]
        return block

    def check_pull(self, ids: NDArray[np.uint64], wanted: NDArray[np.int64], epoch: int = 0) -> None:
        """Checks what a pull asks for.

        Raises:
            InvalidArgument: these are not distinct ids of this shard, with a possible version each.
            StaleEpoch: the epoch is not the table's.
        """
        check_columns(ids, versions=wanted)
        check_distinct(ids)
        check_versions(ids, wanted, lowest=0)
        self._shard.check(ids)
        self.history.check(epoch)

    def push_rows(self, block: RowBlock, epoch: int = 0) -> Pushed:
        """Stores rows that are newer than the stored ones.

        Raises:
            InvalidArgument: wrong sizes, duplicate or foreign ids, NaN.
            FailedPrecondition: partial gradients of a row are pending, and the push would make them void.
            StaleEpoch: the epoch is not the table's.
        """
        block.validate(self.spec)
        self._shard.check(block.ids)
        with self.history.writing(epoch):
            self._forget_older_lives(block.ids, block.versions)
            self._refuse_voiding(block)
            stored = int(self._store.write_newer(block).sum())
        return Pushed(stored, len(block) - stored, block.ids, block.versions)

    def push_gradients(self, block: GradientBlock, epoch: int = 0) -> Pushed:
        """Keeps partial gradients, and trains the rows whose last contributor this is.

        Raises:
            InvalidArgument: wrong sizes, duplicate or foreign ids, NaN, sender not a contributor.
            FailedPrecondition: a gradient skips a version, or disagrees with the pending ones.
            StaleEpoch: the epoch is not the table's.
        """
        block.validate(self.spec)
        self._shard.check(block.ids)
        with self.history.writing(epoch), self._gradients:
            self._forget_older_lives(block.ids, block.targets)
            gradients.forget_made(self._store, block.ids)
            arrivals = gradients.classify(self._store, block)
            waiting = arrivals == Arrival.WAITS
            if waiting.any():
                self._store.partials.add(block[waiting])
            last = block[arrivals == Arrival.COMPLETES]
            if len(last):
                gradients.complete(self._store, self.spec, last, self.read(last.ids, last.targets - 1))
            made = ~waiting & (self._store.partials.splits(block.ids).targets == 0)
        known = int((arrivals == Arrival.REPEATED).sum())
        return Pushed(len(block) - known, known, block.ids[made], block.targets[made])

    def forget(self, ids: NDArray[np.uint64], below: int, epoch: int) -> int:
        """Takes out the rows whose version is below, with what is pending for such versions; how many rows were there.

        Raises:
            InvalidArgument: duplicate or foreign ids, a version that begins no life.
            StaleEpoch: the epoch is not the table's.
        """
        check_distinct(ids)
        self._shard.check(ids)
        if not 0 < below <= MAX_VERSION or at_birth(np.array([below])) != below:
            raise InvalidArgument(f"below is {below}, it must be a version that begins a life: a multiple of 2^30")
        with self.history.writing(epoch):
            self._forget_older_lives(ids, np.full(len(ids), below))
            return self._store.take_out_older(ids, below)

    def scan(self) -> Iterator[RowBlock]:
        """Every stored row, in unspecified order; rows pushed meanwhile may be missing."""
        return self._store.scan()

    def put_dense(self, data: bytes) -> None:
        """Replaces the dense parameters."""
        self._store.put_dense(data)

    def get_dense(self) -> bytes | None:
        """The dense parameters stored last, None when there are none."""
        return self._store.get_dense()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Keeps a named part of a checkpoint."""
        self._store.put_part(checkpoint, name, data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        """A part of a checkpoint, None when there is no such one."""
        return self._store.get_part(checkpoint, name)

    @property
    def durable(self) -> bool:
        """Whether checkpoints and logged samples outlive this process."""
        return self._store.log.durable

    def append_samples(self, entry: LogEntry, epoch: int) -> None:
        """Adds to the log of the sample stream. A repeated entry is ignored.

        Raises:
            FailedPrecondition: the log ends elsewhere than where the entry begins.
            StaleEpoch: the epoch is not the table's.
        """
        with self.history.writing(epoch):
            self._log.append(entry)

    def read_samples(self, epoch: int) -> Iterator[LogEntry]:
        """Begins an epoch, so that nobody else appends, and reads the log. Raises StaleEpoch if a later one began."""
        self.history.begin(epoch)
        return self._log.read()

    def trim_samples(self, position: int | None, epoch: int) -> None:
        """Drops what lies before a position of the log, None: everything. Raises StaleEpoch."""
        with self.history.writing(epoch):
            if position is None:
                self._log.clear()
            else:
                self._log.trim(position)

    def stored_rows(self) -> int:
        """Rows that were trained at least once."""
        return len(self._store)

    def pending_gradients(self) -> int:
        """Partial gradients that wait for their other contributors."""
        return len(self._store.partials)

    def pending_bytes(self) -> int:
        """Memory that the pending gradients take in this process."""
        return self._store.partials.memory_bytes

    def _forget_older_lives(self, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        births = at_birth(versions)
        if births.any():  # or nothing has had a life before, and a push of rows need not wait for gradients
            with self._gradients:
                gradients.forget_older_lives(self._store, ids, births)

    def _refuse_voiding(self, block: RowBlock) -> None:
        targets = self._store.partials.splits(block.ids).targets
        at = np.flatnonzero((targets > 0) & (targets <= block.versions))
        if len(at):
            void = at[self._store.versions(block.ids[at]) < targets[at]]
            if len(void):
                row = int(void[0])
                raise FailedPrecondition(
                    f"row {block.ids[row]} is pushed at version {block.versions[row]}, but partial gradients for its "
                    f"version {targets[row]} are pending"
                )
