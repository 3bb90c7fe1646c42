"""Epochs, cuts and the way back (docs/recovery.md).

A cut is complete when every worker of the epoch has said that it owes the server nothing more; the rows as they are
then belong to it. Instead of copying them, the store keeps the pre-image of each row that changes afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ps_server.core.gate import Gate
from ps_server.core.record import Committed, Cut, Record
from ps_server.core.store import TableStore
from services.domain.errors import FailedPrecondition, InvalidArgument, StaleEpoch


def go_back(store: TableStore, record: Record, checkpoint: int, epoch: int) -> tuple[Record, int]:
    """Puts the rows of a store that nobody writes to back to a cut; the record from then on, and how many rows.

    May be repeated after a failure. What belonged to later cuts is dropped when the table is taken up again.
    """
    changed = 0
    for cut in reversed([cut for cut in record.iterations if cut >= checkpoint]):
        changed += store.undo(cut)
    if not checkpoint:
        store.clear()
    store.partials.clear()
    back = replace(record.going_back_to(checkpoint), epoch=epoch)
    store.save_history(back.encode())
    return back, changed


class History:
    """The history of one table. Thread-safe."""

    def __init__(self, store: TableStore, table: str) -> None:
        """Takes up what the store has recorded.

        Raises:
            FailedPrecondition: what it has recorded, or the rows of its last checkpoint, are damaged.
        """
        self._store = store
        self._table = table
        self._gate = Gate()
        stored = store.load_history()
        self._record = Record() if stored is None else Record.decode(stored, f"table {table!r}")
        if stored is not None and store.reopen([each.cut for each in self._record.committed]):
            self._go_on_from_committed()
        self._sweep()
        store.keep_undo(self._record.last_iteration or None)

    @property
    def record(self) -> Record:
        """As it stands."""
        return self._record

    def check(self, epoch: int) -> None:
        """Raises StaleEpoch unless `epoch` is the table's."""
        if epoch != self._record.epoch:
            raise StaleEpoch(
                f"epoch {epoch} is not that of table {self._table!r}, which is in epoch {self._record.epoch}"
            )

    @contextmanager
    def writing(self, epoch: int) -> Iterator[None]:
        """Surrounds every change of rows. Raises StaleEpoch unless `epoch` is the table's."""
        with self._gate.passing():
            self.check(epoch)
            yield

    def cut(self, epoch: int, checkpoint: int, worker: int, contributors: int) -> bool:
        """Counts one worker in; True when the cut is complete.

        Raises:
            InvalidArgument: the worker is no contributor, or checkpoint 0 is cut, which is the empty table.
            FailedPrecondition: a later cut is there already.
            StaleEpoch: the epoch is not the table's.
        """
        if checkpoint < 1:
            raise InvalidArgument("checkpoint is 0, cuts are named by the iteration that follows them")
        if not (0 <= worker < 64 and contributors >> worker & 1):
            raise InvalidArgument(f"worker {worker} is not among the contributors {contributors:#x} of the cut")
        with self._gate.closed():
            self.check(epoch)
            record = self._record
            if record.has(checkpoint):
                return True
            if checkpoint < max(record.arriving, record.last_iteration):
                raise FailedPrecondition(f"cut {checkpoint} comes too late, cut {record.last_iteration} is there")
            arrived = (record.arrived if record.arriving == checkpoint else 0) | 1 << worker
            complete = arrived & contributors == contributors
            if complete:
                cut = Cut(checkpoint, *self._store.totals())
                self._write(replace(record, cuts=(*record.cuts, cut), arriving=0, arrived=0))
                self._store.keep_undo(checkpoint)
            else:
                self._write(replace(record, arriving=checkpoint, arrived=arrived))
            return complete

    def check_complete(self, epoch: int, checkpoint: int) -> None:
        """Raises FailedPrecondition unless the cut is complete, StaleEpoch if the epoch is not the table's."""
        self.check(epoch)
        if not self._record.has(checkpoint):
            raise FailedPrecondition(f"cut {checkpoint} of table {self._table!r} is not complete")

    def save(self, epoch: int, checkpoint: int) -> tuple[int, int]:
        """Makes a complete cut durable; how many rows changed since the cut before, and the bytes they take.

        Raises:
            FailedPrecondition: the cut is not complete.
            StaleEpoch: the epoch is not the table's.
        """
        self.check_complete(epoch, checkpoint)
        earlier = max((cut for cut in self._record.iterations if cut < checkpoint), default=0)
        return self._store.save(checkpoint, earlier)

    def commit(self, epoch: int, checkpoint: int, manifest: bytes, keep: int) -> None:
        """Makes a checkpoint the valid one; of the committed ones, the last `keep` stay, the others are dropped.

        Checkpoint 0 is the table as it was created.

        Raises:
            InvalidArgument: none is to be kept.
            FailedPrecondition: the cut is not complete.
            StaleEpoch: the epoch is not the table's.
        """
        if keep < 1:
            raise InvalidArgument(f"keep is {keep}, at least the checkpoint that is committed must stay")
        if checkpoint:
            self.check_complete(epoch, checkpoint)
        with self._gate.closed():
            self.check(epoch)
            self._write(self._record.committing(Committed(checkpoint, manifest), keep))
            self._sweep()

    def restore(self, checkpoint: int, epoch: int) -> int:
        """Puts the rows back to a cut and begins an epoch; how many rows had to be put back.

        What came after that cut is dropped.

        Raises:
            FailedPrecondition: there is no way back to that cut.
            StaleEpoch: a later epoch has begun.
        """
        with self._gate.closed():
            record = self._record
            self._check_begins(epoch)
            if checkpoint and not record.has(checkpoint):
                raise FailedPrecondition(
                    f"table {self._table!r} cannot go back to checkpoint {checkpoint}: this server holds "
                    f"{list(record.iterations) or 'none'}; one with its store in memory loses them when it is restarted"
                )
            self._record, changed = go_back(self._store, record, checkpoint, epoch)
            self._store.keep_undo(checkpoint or None)
            self._sweep(unfinished=True)
            return changed

    def begin(self, epoch: int) -> None:
        """Begins an epoch with the rows as they are: requests of earlier ones are refused from now on.

        Raises:
            StaleEpoch: a later epoch has begun.
        """
        with self._gate.closed():
            self._check_begins(epoch)
            self._write(replace(self._record, epoch=epoch))

    def _check_begins(self, epoch: int) -> None:
        if epoch < self._record.epoch:
            raise StaleEpoch(f"epoch {epoch} cannot begin, table {self._table!r} is in epoch {self._record.epoch}")

    def _go_on_from_committed(self) -> None:
        """What came after the last checkpoint is lost, so the epoch is over."""
        record = self._record
        self._write(replace(record.going_back_to(record.last.cut), epoch=record.epoch + 1))

    def _sweep(self, *, unfinished: bool = False) -> None:
        """Drops what is left of cuts of the past, if asked also parts of checkpoints that never came to be.

        What a crash leaves behind is dropped when the table is taken up again, or at the next checkpoint.
        """
        record = self._record
        for cut in record.outdated:
            self._store.forget(cut)
        for checkpoint in self._store.parts() - set(record.iterations):
            if unfinished or checkpoint < record.last_iteration:
                self._store.drop_parts(checkpoint)
        self._record = replace(record, outdated=())

    def _write(self, record: Record) -> None:
        self._store.save_history(record.encode())
        self._record = record
