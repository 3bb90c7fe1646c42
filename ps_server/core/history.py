"""Epochs, cuts and checkpoints of a table (docs/recovery-protocol.md).

A cut is complete when every worker of the epoch has reported that all its pushes are acknowledged; the cut is the rows
at that moment. The store does not copy them: it keeps the pre-image of each row that changes afterwards. A checkpoint
is a cut that was committed with a manifest. history_record.py defines the durable record of all this; this module
changes it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from esd.ps_server.core.history_record import Checkpoint, Cut, HistoryRecord
from esd.ps_server.core.shared_lock import SharedLock
from esd.ps_server.core.store import TableStore
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, StaleEpoch
from esd.services.domain.worker_set import WorkerSet

_LONGEST_STEP = 2**20  # from one epoch to the next; a cluster of many shards that often die needs a few dozen
_MOST_PENDING = 8  # checkpoints with parts that are not committed yet; a job makes one or two at a time
_MOST_PARTS = 4096  # parts of one checkpoint: five kinds exist, in pieces of 64 MiB


def go_back(store: TableStore, record: HistoryRecord, checkpoint: int, epoch: int) -> tuple[HistoryRecord, int]:
    """Puts the rows of a store, which must have no writers, back to a cut.

    May be repeated after a failure. The files and pre-images of later cuts stay until the table is opened again.

    Args:
        store: the table's store.
        record: the table's history.
        checkpoint: names the cut; 0: the table as it was created.
        epoch: the epoch that begins with the restored rows.

    Returns:
        The new record, and the number of rows that were put back.
    """
    if not checkpoint:
        changed = len(store.rows)
        store.rows.clear()
    elif record.is_saved_only(checkpoint):
        changed = store.cuts.put_back([checkpoint])
    else:
        changed = store.cuts.put_back([cut for cut in record.iterations if cut >= checkpoint])
    store.partials.clear()
    back = replace(record.going_back_to(checkpoint), epoch=epoch, restored=checkpoint, finished=False)
    store.history.save(back.encode())
    return back, changed


class CheckpointHistory:
    """The history of one table. Thread-safe."""

    def __init__(self, store: TableStore, table: str) -> None:
        """Loads the stored record; begins a new epoch if the store has lost the rows since the last checkpoint.

        Raises:
            FailedPrecondition: the record, or the rows of the last checkpoint, are damaged.
        """
        self._store = store
        self._table = table
        # Held while a cut is saved. A save whose RPC was cancelled runs on in its thread and keeps the lock to its end.
        self._saving = threading.Lock()
        self._last_save: tuple[int, int, tuple[int, int]] | None = None  # epoch, cut and result of the last save
        self._parts = threading.Lock()  # held while a part is stored, so that the count of parts is exact
        self._part_names: dict[int, set[str]] = {}  # by checkpoint that was not committed when its part was stored
        self._lock = SharedLock()  # shared by writers of rows; exclusive where rows must stand still
        stored = store.history.load()
        self._record = HistoryRecord() if stored is None else HistoryRecord.decode(stored, f"table {table!r}")
        saved = self._record.saved
        lost = stored is not None and store.cuts.resume(
            [each.iteration for each in self._record.committed], saved.iteration if saved else 0
        )
        if lost:
            self._begin_after_last_checkpoint()
        self._sweep(uncommitted_parts=lost)  # with the rows lost, unfinished checkpoints can never be committed
        store.cuts.keep_pre_images(self._record.last_iteration or None)

    @property
    def record(self) -> HistoryRecord:
        """The present record; every change replaces it by a new object."""
        return self._record

    def check_epoch(self, epoch: int) -> None:
        """Raises StaleEpoch unless `epoch` is the table's present epoch."""
        if epoch != self._record.epoch:
            raise StaleEpoch(
                f"epoch {epoch} is not the epoch of table {self._table!r}, which is in epoch {self._record.epoch}"
            )

    def check_unfinished(self) -> None:
        """Raises FailedPrecondition if the job that trains the table has ended."""
        if self._record.finished:
            raise FailedPrecondition(
                f"table {self._table!r} is finished: its job has ended, and it stays as it is; train another table "
                "(--table), or go back to a checkpoint and train on from there (esd checkpoint restore)"
            )

    @contextmanager
    def in_epoch(self, epoch: int) -> Iterator[None]:
        """Holds off a change of epoch during the block. Raises StaleEpoch if `epoch` is not the table's epoch."""
        with self._lock.shared():
            self.check_epoch(epoch)
            yield

    @contextmanager
    def writing(self, epoch: int) -> Iterator[None]:
        """Holds off cuts and a change of epoch while the block changes rows or dense parameters.

        Raises:
            StaleEpoch: `epoch` is not the table's epoch.
            FailedPrecondition: the table is finished.
        """
        with self._lock.shared():
            self.check_epoch(epoch)
            self.check_unfinished()
            yield

    @contextmanager
    def writing_at_once(self, epoch: int) -> Iterator[bool]:
        """Like `writing`, but never waits: yields False where `writing` would wait or raise."""
        if not self._lock.try_share():
            yield False
            return
        try:
            yield epoch == self._record.epoch and not self._record.finished
        finally:
            self._lock.unshare()

    @contextmanager
    def at_checkpoint(self, checkpoint: int) -> Iterator[tuple[int, ...]]:
        """Keeps a checkpoint from being dropped while the block reads its rows; yields the later cuts, ascending.

        Raises:
            FailedPrecondition: the checkpoint does not exist, or is no longer kept.
        """
        with self._lock.shared():
            record = self._record
            if not any(each.iteration == checkpoint for each in record.committed) or not checkpoint:
                raise FailedPrecondition(
                    f"table {self._table!r} has no checkpoint {checkpoint}; it keeps "
                    f"{[each.iteration for each in record.committed if each.iteration] or 'none'} "
                    "(--checkpoints-kept sets their number)"
                )
            yield tuple(cut for cut in record.iterations if cut > checkpoint)

    def cut(self, epoch: int, checkpoint: int, worker: int, contributors: int, *, last: bool = False) -> bool:
        """Records one worker's report for a cut, and returns whether the cut is complete now.

        Args:
            epoch: the epoch of the worker.
            checkpoint: names the cut, > 0.
            worker: slot of the worker.
            contributors: mask of the worker slots whose reports make the cut complete.
            last: whether the job ends here without a checkpoint: the table is finished, no pre-images are kept.

        Raises:
            InvalidArgument: the worker is no contributor, or `checkpoint` is 0, which names the empty table.
            FailedPrecondition: a later cut exists already, or the table is finished.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        if checkpoint < 1:
            raise InvalidArgument("checkpoint is 0, but a cut is named by the iteration that follows it, 1 or above")
        if worker not in WorkerSet(contributors):
            raise InvalidArgument(f"worker {worker} is not among the contributors {contributors:#x} of the cut")
        with self._lock.exclusive():
            self.check_epoch(epoch)
            record = self._record
            if record.has(checkpoint) or (last and record.finished):
                return True
            self.check_unfinished()
            if checkpoint < max(record.arriving, record.last_iteration):
                raise FailedPrecondition(f"cut {checkpoint} comes too late: cut {record.last_iteration} exists already")
            arrived = (record.arrived if record.arriving == checkpoint else 0) | 1 << worker
            complete = arrived & contributors == contributors
            if complete and last:
                self._write(replace(record, arriving=0, arrived=0, finished=True))
            elif complete:
                cut = Cut(checkpoint, *self._store.rows.totals())
                self._write(replace(record, cuts=(*record.cuts, cut), arriving=0, arrived=0))
                self._store.cuts.keep_pre_images(checkpoint)
            else:
                self._write(replace(record, arriving=checkpoint, arrived=arrived))
            return complete

    def save(self, epoch: int, checkpoint: int) -> tuple[int, int]:
        """Makes a complete cut durable; returns the number of rows changed since the cut before, and their bytes.

        A cut is written once in an epoch: a call that is repeated because its answer was lost has the same result.

        Raises:
            FailedPrecondition: the cut is not complete.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        with self._saving:
            self._check_complete(epoch, checkpoint)
            if self._last_save is not None and self._last_save[:2] == (epoch, checkpoint):
                return self._last_save[2]
            earlier = max((cut for cut in self._record.iterations if cut < checkpoint), default=0)
            base = max((each.iteration for each in self._record.committed if each.iteration < checkpoint), default=0)
            changed, size = self._store.cuts.save(checkpoint, earlier, base)
            with self._lock.exclusive():
                self._check_complete(epoch, checkpoint)
                saved = next(cut for cut in self._record.cuts if cut.iteration == checkpoint)
                self._write(replace(self._record, saved=saved))
            # A store that writes all rows counts one twice that changes meanwhile, and rows that are new since the cut.
            self._last_save = epoch, checkpoint, (min(changed, saved.rows), size)
            return self._last_save[2]

    def commit(self, epoch: int, checkpoint: int, manifest: bytes, keep: int, *, finished: bool = False) -> None:
        """Makes a cut the newest checkpoint; keeps the last `keep` checkpoints and drops older ones.

        Checkpoint 0 is the table as it was created. `finished` marks the job's last checkpoint: the job has ended.

        Raises:
            InvalidArgument: `keep` is below 1.
            FailedPrecondition: the cut is not complete, a later checkpoint is committed, or the job has ended.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        if keep < 1:
            raise InvalidArgument(f"keep is {keep}, at least the checkpoint that is committed must stay")
        if checkpoint:
            self._check_complete(epoch, checkpoint)
        with self._lock.exclusive():
            self.check_epoch(epoch)
            if not finished:
                self.check_unfinished()
            if checkpoint < self._record.last.iteration:
                raise FailedPrecondition(
                    f"checkpoint {checkpoint} of table {self._table!r} comes too late, checkpoint "
                    f"{self._record.last.iteration} is committed"
                )
            record = self._record.committing(Checkpoint(checkpoint, manifest), keep)
            self._write(replace(record, finished=finished))
            self._sweep()

    def restore(self, checkpoint: int, epoch: int, claimant: bytes) -> int:
        """Puts the rows back to a cut and begins an epoch; returns the number of rows that were put back.

        Everything after the cut is dropped. An epoch restores once: a repeated call of the same epoch may arrive late,
        after its caller has timed out and sent another, when rows are already trained. It then changes nothing.

        Args:
            checkpoint: names the cut.
            epoch: the epoch that begins, or that this dispatcher has already begun.
            claimant: names the dispatcher.

        Raises:
            FailedPrecondition: the cut does not exist here, or the epoch has begun at another cut.
            StaleEpoch: a later epoch has begun, or another dispatcher has begun this one.
            InvalidArgument: the epoch is too far above the present one.
        """
        with self._lock.exclusive():
            record = self._record
            self._check_begins(epoch, claimant)
            if epoch == record.claimed and record.restored is not None:
                self._check_restored(checkpoint)
                return 0
            if checkpoint and not (record.has(checkpoint) or record.is_saved_only(checkpoint)):
                raise FailedPrecondition(
                    f"table {self._table!r} cannot go back to checkpoint {checkpoint}: this server holds "
                    f"{list(record.iterations) or 'none'}; one with its store in memory loses them when it is restarted"
                )
            claimed = record.claimed_by(claimant, epoch)
            self._record, changed = go_back(self._store, claimed, checkpoint, epoch)
            self._store.cuts.keep_pre_images(checkpoint or None)
            self._sweep(uncommitted_parts=True)
            return changed

    def claim(self, claimant: bytes) -> None:
        """Claims an unclaimed table for a job without epochs. May be repeated.

        Without the claim, two such jobs would push rows at the same versions: the server would take the later pushes
        for repetitions, and each job would train the rows of the other.

        Raises:
            FailedPrecondition: another job has claimed the table, or a dispatcher has begun an epoch on it.
        """
        with self._lock.exclusive():
            record = self._record
            if record.has_another(claimant) or (record.epoch and not record.claimant):
                raise FailedPrecondition(
                    f"table {self._table!r} belongs to another job, which trains it or has begun to; a job without "
                    "checkpoints begins with a table of its own (--table), or with an empty store"
                )
            if not record.claimant:
                self._write(record.claimed_by(claimant, record.epoch))

    def begin_epoch(self, epoch: int, claimant: bytes, *, takes_over: bool) -> None:
        """Begins an epoch and leaves the rows as they are; from now on requests of earlier epochs are refused.

        Args:
            epoch: the epoch that begins, or that this dispatcher has already begun.
            claimant: names the dispatcher.
            takes_over: whether this dispatcher may take the table from another one that has begun an epoch here.

        Raises:
            FailedPrecondition: the table belongs to another dispatcher, and `takes_over` is False.
            StaleEpoch: a later epoch has begun, or another dispatcher has begun this one.
            InvalidArgument: the epoch is too far above the present one.
        """
        with self._lock.exclusive():
            record = self._record
            if not takes_over and record.has_another(claimant):
                raise FailedPrecondition(
                    f"another dispatcher has taken table {self._table!r} over, with epoch {record.claimed}, and the "
                    "job runs there; if that dispatcher has ended, too, repeat the job: it resumes from its checkpoint"
                )
            self._check_begins(epoch, claimant)
            claimed = record.claimed_by(claimant, epoch)
            if claimed != record:
                self._write(claimed)

    def put_part(self, checkpoint: int, name: str, data: bytes, epoch: int) -> None:
        """Stores a named part of a checkpoint that is not committed yet.

        Raises:
            StaleEpoch: `epoch` is not the table's epoch.
            FailedPrecondition: this or a later checkpoint is committed, or the table is finished.
            ResourceExhausted: too many checkpoints, or too many parts of this one, wait to be committed.
        """
        with self._lock.shared(), self._parts:
            self.check_epoch(epoch)
            if checkpoint <= self._record.last.iteration:
                raise FailedPrecondition(
                    f"checkpoint {checkpoint} of table {self._table!r} is not being made: checkpoint "
                    f"{self._record.last.iteration} is committed, and parts of committed checkpoints stay as they are"
                )
            self.check_unfinished()
            pending = self._store.blobs.checkpoints() - {each.iteration for each in self._record.committed}
            if checkpoint not in pending and len(pending) >= _MOST_PENDING:
                raise ResourceExhausted(
                    f"checkpoints {sorted(pending)} of table {self._table!r} have parts and are not committed; no more "
                    f"than {_MOST_PENDING} may be made at a time"
                )
            names = self._part_names.setdefault(checkpoint, set())
            if name not in names and len(names) >= _MOST_PARTS:
                raise ResourceExhausted(
                    f"checkpoint {checkpoint} of table {self._table!r} has {len(names)} parts, and {name!r} would be "
                    f"another; no more than {_MOST_PARTS} are kept"
                )
            self._store.blobs.put_part(checkpoint, name, data)
            names.add(name)

    def _check_begins(self, epoch: int, claimant: bytes) -> None:
        present = self._record.epoch
        if epoch < present:
            raise StaleEpoch(f"epoch {epoch} cannot begin, table {self._table!r} is in epoch {present}")
        if epoch == present and self._record.is_of_another(claimant):
            raise StaleEpoch(
                f"another dispatcher has begun epoch {epoch} of table {self._table!r}; begin a later one, or leave the "
                "table to that dispatcher"
            )
        if epoch > present + _LONGEST_STEP:
            raise InvalidArgument(
                f"epoch {epoch} cannot begin, table {self._table!r} is in epoch {present}, and an epoch is at most "
                f"{_LONGEST_STEP} above the one before: otherwise none could follow"
            )

    def _check_restored(self, checkpoint: int) -> None:
        record = self._record
        if checkpoint != record.restored:
            raise FailedPrecondition(
                f"epoch {record.epoch} of table {self._table!r} has begun at checkpoint {record.restored}; only a "
                f"later epoch can begin at checkpoint {checkpoint}"
            )

    def _check_complete(self, epoch: int, checkpoint: int) -> None:
        self.check_epoch(epoch)
        if not self._record.has(checkpoint):
            raise FailedPrecondition(f"cut {checkpoint} of table {self._table!r} is not complete")

    def _begin_after_last_checkpoint(self) -> None:
        """Begins a new epoch at the last checkpoint, because the process has lost all later changes."""
        record, last = self._record, self._record.last.iteration
        saved = record.saved if record.saved is not None and record.saved.iteration > last else None
        back = replace(record.going_back_to(last), epoch=record.epoch + 1, restored=None, saved=saved)
        if saved is not None:  # may be a checkpoint on the other shards; its file stays until the dispatcher decides
            back = replace(back, outdated_cuts=tuple(cut for cut in back.outdated_cuts if cut != saved.iteration))
        self._write(replace(back, finished=record.finished and bool(record.committed)))

    def _sweep(self, *, uncommitted_parts: bool = False) -> None:
        """Drops outdated cuts and, with `uncommitted_parts`, the parts of checkpoints that were never committed.

        A crash may leave such data; this runs when the table is opened and at every commit, and then drops it.
        """
        record = self._record
        for cut in record.outdated_cuts:
            self._store.cuts.drop(cut)
        for checkpoint in self._store.blobs.checkpoints() - set(record.iterations):
            if uncommitted_parts or checkpoint < record.last_iteration:
                self._store.blobs.drop_parts(checkpoint)
        self._part_names = {
            each: names
            for each, names in self._part_names.items()
            if not uncommitted_parts and each > record.last.iteration
        }
        self._record = replace(record, outdated_cuts=())

    def _write(self, record: HistoryRecord) -> None:
        self._store.history.save(record.encode())
        self._record = record
