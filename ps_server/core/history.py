"""Epochs, cuts and the way back (docs/recovery.md).

A cut is complete when every worker of the epoch has said that it owes the server nothing more; the rows as they are
then belong to it. Instead of copying them, the store keeps the pre-image of each row that changes afterwards. A
checkpoint is a cut that was committed with a manifest. What of all this must last is in history_record.py; here is what
happens to it.
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

_LONGEST_STEP = 2**20  # from one epoch to the next; a cluster of many shards that die often needs some dozens
_MOST_PENDING = 8  # checkpoints that have parts and are not committed; one or two are made at a time
_MOST_PARTS = 8  # of one checkpoint; there are five


def go_back(store: TableStore, record: HistoryRecord, checkpoint: int, epoch: int) -> tuple[HistoryRecord, int]:
    """Puts the rows of a store that nobody writes to back to a cut.

    May be repeated after a failure. What belonged to later cuts is dropped when the table is taken up again.

    Args:
        store: the table.
        record: its history.
        checkpoint: names the cut; 0: the table as it was created.
        epoch: begins with the rows as they are then.

    Returns:
        The record from then on, and how many rows were put back.
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


class History:
    """The history of one table. Thread-safe."""

    def __init__(self, store: TableStore, table: str) -> None:
        """Takes up what the store has recorded.

        Raises:
            FailedPrecondition: what it has recorded, or the rows of its last checkpoint, are damaged.
        """
        self._store = store
        self._table = table
        self._saving = threading.Lock()  # held while a cut is saved, also by who was given up and writes on
        self._parts = threading.Lock()  # held while a part is put, so that their number is known
        self._part_names: dict[int, set[str]] = {}  # of checkpoints that were not committed when they were put
        self._keep: int | None = None  # how many checkpoints the last commit kept
        self._lock = SharedLock()  # shared by those who change rows, exclusive to those who need them to stand still
        stored = store.history.load()
        self._record = HistoryRecord() if stored is None else HistoryRecord.decode(stored, f"table {table!r}")
        saved = self._record.saved
        lost = stored is not None and store.cuts.resume(
            [each.iteration for each in self._record.committed], saved.iteration if saved else 0
        )
        if lost:
            self._begin_after_last_checkpoint()
        self._sweep(uncommitted_parts=lost)  # what was being made cannot be committed any more
        store.cuts.keep_pre_images(self._record.last_iteration or None)

    @property
    def record(self) -> HistoryRecord:
        """The record as it is now; a new one replaces it with every change."""
        return self._record

    def check_epoch(self, epoch: int) -> None:
        """Raises StaleEpoch unless `epoch` is the table's."""
        if epoch != self._record.epoch:
            raise StaleEpoch(
                f"epoch {epoch} is not that of table {self._table!r}, which is in epoch {self._record.epoch}"
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
        """Surrounds what an epoch may do whether or not the table is finished. Raises StaleEpoch in another one."""
        with self._lock.shared():
            self.check_epoch(epoch)
            yield

    @contextmanager
    def writing(self, epoch: int) -> Iterator[None]:
        """Surrounds every change of rows, and of the dense parameters.

        Raises:
            StaleEpoch: the epoch is not the table's.
            FailedPrecondition: the table is finished.
        """
        with self._lock.shared():
            self.check_epoch(epoch)
            self.check_unfinished()
            yield

    @contextmanager
    def writing_at_once(self, epoch: int) -> Iterator[bool]:
        """Surrounds a change of rows that waits for nothing; yields whether it may be made now: see `writing`."""
        if not self._lock.try_share():
            yield False
            return
        try:
            yield epoch == self._record.epoch and not self._record.finished
        finally:
            self._lock.unshare()

    @contextmanager
    def at_checkpoint(self, checkpoint: int) -> Iterator[tuple[int, ...]]:
        """Surrounds reads of rows as they were at a checkpoint; yields the cuts after it, ascending.

        Raises:
            FailedPrecondition: there is no such checkpoint, or it is not kept any more.
        """
        with self._lock.shared():
            record = self._record
            if not any(each.iteration == checkpoint for each in record.committed) or not checkpoint:
                raise FailedPrecondition(
                    f"table {self._table!r} has no checkpoint {checkpoint}; it keeps "
                    f"{[each.iteration for each in record.committed if each.iteration] or 'none'} "
                    "(--checkpoints-kept says how many)"
                )
            yield tuple(cut for cut in record.iterations if cut > checkpoint)

    def cut(self, epoch: int, checkpoint: int, worker: int, contributors: int, *, last: bool = False) -> bool:
        """Counts one worker's report for a cut; True when the cut is complete.

        Args:
            epoch: the epoch of the worker.
            checkpoint: names the cut, > 0.
            worker: slot of the worker.
            contributors: mask of the worker slots whose reports make the cut complete.
            last: whether the job ends here without a checkpoint: the table is finished then, and no way back is kept.

        Raises:
            InvalidArgument: the worker is no contributor, or checkpoint 0 is cut, which is the empty table.
            FailedPrecondition: a later cut is there already, or the table is finished.
            StaleEpoch: the epoch is not the table's.
        """
        if checkpoint < 1:
            raise InvalidArgument("checkpoint is 0, cuts are named by the iteration that follows them")
        if worker not in WorkerSet(contributors):
            raise InvalidArgument(f"worker {worker} is not among the contributors {contributors:#x} of the cut")
        with self._lock.exclusive():
            self.check_epoch(epoch)
            record = self._record
            if record.has(checkpoint) or (last and record.finished):
                return True
            self.check_unfinished()
            if checkpoint < max(record.arriving, record.last_iteration):
                raise FailedPrecondition(f"cut {checkpoint} comes too late, cut {record.last_iteration} is there")
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
        """Makes a complete cut durable; how many rows changed since the cut before, and the bytes they take.

        Raises:
            FailedPrecondition: the cut is not complete.
            StaleEpoch: the epoch is not the table's.
        """
        with self._saving:
            self._check_complete(epoch, checkpoint)
            earlier = max((cut for cut in self._record.iterations if cut < checkpoint), default=0)
            changed = self._store.cuts.save(checkpoint, earlier, self._base_of(checkpoint))
            with self._lock.exclusive():
                self._check_complete(epoch, checkpoint)
                saved = next(cut for cut in self._record.cuts if cut.iteration == checkpoint)
                self._write(replace(self._record, saved=saved))
        return changed

    def commit(self, epoch: int, checkpoint: int, manifest: bytes, keep: int, *, finished: bool = False) -> None:
        """Makes a checkpoint the valid one; of the committed ones, the last `keep` stay, the others are dropped.

        Checkpoint 0 is the table as it was created. With `finished` it is the last one: the job has ended.

        Raises:
            InvalidArgument: none is to be kept.
            FailedPrecondition: the cut is not complete, or a later checkpoint, or the end of the job, is committed.
            StaleEpoch: the epoch is not the table's.
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
            self._keep = keep
            record = self._record.committing(Checkpoint(checkpoint, manifest), keep)
            self._write(replace(record, finished=finished))
            self._sweep()

    def restore(self, checkpoint: int, epoch: int, claimant: bytes) -> int:
        """Puts the rows back to a cut and begins an epoch; how many rows had to be put back.

        What came after that cut is dropped. An epoch goes back once: when its beginning is repeated, as by an attempt
        that its caller had given up and that ran late, the rows may be trained already, and stay as they are.

        Args:
            checkpoint: names the cut.
            epoch: that begins, or has begun for this dispatcher.
            claimant: names the dispatcher.

        Raises:
            FailedPrecondition: there is no way back to that cut, or the epoch has begun at another one.
            StaleEpoch: a later epoch has begun, or this one for another dispatcher.
            InvalidArgument: the epoch is far above the present one.
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
        """Claims a table that nobody has, for a job that begins no epoch. May be repeated.

        Two such jobs would push rows at the same versions, of which the later ones are taken for repeated ones, and
        each would train on with rows of the other.

        Raises:
            FailedPrecondition: another job has claimed it, or a dispatcher has begun an epoch.
        """
        with self._lock.exclusive():
            record = self._record
            if record.has_another(claimant) or (record.epoch and not record.claimant):
                raise FailedPrecondition(
                    f"table {self._table!r} is that of another job, which trains it or has begun to; a job without "
                    "checkpoints begins with a table of its own (--table), or with an empty store"
                )
            if not record.claimant:
                self._write(record.claimed_by(claimant, record.epoch))

    def begin_epoch(self, epoch: int, claimant: bytes, *, takes_over: bool) -> None:
        """Begins an epoch with the rows as they are: requests of earlier ones are refused from now on.

        Args:
            epoch: that begins, or has begun for this dispatcher.
            claimant: names the dispatcher.
            takes_over: whether the table may be another dispatcher's, which has begun an epoch here.

        Raises:
            FailedPrecondition: the table is another dispatcher's.
            StaleEpoch: a later epoch has begun, or this one for another dispatcher.
            InvalidArgument: the epoch is far above the present one.
        """
        with self._lock.exclusive():
            record = self._record
            if not takes_over and record.has_another(claimant):
                raise FailedPrecondition(
                    f"another dispatcher has taken table {self._table!r} over, with epoch {record.claimed}, and the "
                    "job goes on there; if that one has ended, too, repeat the job: it goes on from its last checkpoint"
                )
            self._check_begins(epoch, claimant)
            claimed = record.claimed_by(claimant, epoch)
            if claimed != record:
                self._write(claimed)

    def put_part(self, checkpoint: int, name: str, data: bytes, epoch: int) -> None:
        """Keeps a named part of a checkpoint that is being made.

        Raises:
            StaleEpoch: the epoch is not the table's.
            FailedPrecondition: that checkpoint is committed, or a later one is; the table is finished.
            ResourceExhausted: too many others, or too many parts of this one, wait to be committed.
        """
        with self._lock.shared(), self._parts:
            self.check_epoch(epoch)
            if checkpoint <= self._record.last.iteration:
                raise FailedPrecondition(
                    f"checkpoint {checkpoint} of table {self._table!r} is not being made: checkpoint "
                    f"{self._record.last.iteration} is committed, its parts and those of earlier ones stay as they are"
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
                    f"checkpoint {checkpoint} of table {self._table!r} has the parts {', '.join(sorted(names))}; "
                    f"no more than {_MOST_PARTS} are kept"
                )
            self._store.blobs.put_part(checkpoint, name, data)
            names.add(name)

    def _base_of(self, checkpoint: int) -> int:
        """Returns the checkpoint that the files of another one may build on, 0 for none.

        It is not the last one, so that of two checkpoints that are kept side by side none needs a file of the other:
        one damaged file never takes both.
        """
        earlier = [each.iteration for each in self._record.committed if 0 < each.iteration < checkpoint]
        apart = 1 if self._keep == 1 else 2
        return earlier[-apart] if len(earlier) >= apart else 0

    def _check_begins(self, epoch: int, claimant: bytes) -> None:
        present = self._record.epoch
        if epoch < present:
            raise StaleEpoch(f"epoch {epoch} cannot begin, table {self._table!r} is in epoch {present}")
        if epoch == present and self._record.is_of_another(claimant):
            raise StaleEpoch(
                f"epoch {epoch} of table {self._table!r} is that of another dispatcher, which began it first; begin a "
                "later one, or leave the table to that dispatcher"
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
                f"later one can begin at checkpoint {checkpoint}"
            )

    def _check_complete(self, epoch: int, checkpoint: int) -> None:
        self.check_epoch(epoch)
        if not self._record.has(checkpoint):
            raise FailedPrecondition(f"cut {checkpoint} of table {self._table!r} is not complete")

    def _begin_after_last_checkpoint(self) -> None:
        """Begins a new epoch at the last checkpoint: what came after it was lost with the process."""
        record, last = self._record, self._record.last.iteration
        saved = record.saved if record.saved is not None and record.saved.iteration > last else None
        back = replace(record.going_back_to(last), epoch=record.epoch + 1, restored=None, saved=saved)
        if saved is not None:  # whether it is a checkpoint, the dispatcher will say
            back = replace(back, outdated_cuts=tuple(cut for cut in back.outdated_cuts if cut != saved.iteration))
        self._write(replace(back, finished=record.finished and bool(record.committed)))

    def _sweep(self, *, uncommitted_parts: bool = False) -> None:
        """Drops what is left of cuts of the past; if asked, also the parts of checkpoints that were never committed.

        What a crash leaves behind is dropped when the table is taken up again, or at the next checkpoint.
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
