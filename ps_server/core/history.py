"""Epochs, cuts and the way back (docs/recovery.md).

A cut is complete when every worker of the epoch has said that it owes the server nothing more; the rows as they are
then belong to it. Instead of copying them, the store keeps the pre-image of each row that changes afterwards.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ps_server.core.gate import Gate
from ps_server.core.store import TableStore
from services.domain.errors import FailedPrecondition, InvalidArgument, StaleEpoch


@dataclass(frozen=True, slots=True)
class Record:
    """What of a table's history must last.

    Attributes:
        epoch: whose requests are served.
        cuts: complete cuts that there is a way back to, ascending; changes are recorded under the last.
        committed: the valid checkpoint; 0: none.
        manifest: what it was committed with.
        arriving: the cut that workers are reporting for; 0: none.
        arrived: mask of the worker slots that have.
    """

    epoch: int = 0
    cuts: tuple[int, ...] = ()
    committed: int = 0
    manifest: bytes = b""
    arriving: int = 0
    arrived: int = 0

    def encode(self) -> bytes:
        """As JSON."""
        fields = {name: getattr(self, name) for name in ("epoch", "cuts", "committed", "arriving", "arrived")}
        return json.dumps(fields | {"manifest": base64.b64encode(self.manifest).decode()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """Reads what `encode` made."""
        fields = json.loads(data)
        manifest = base64.b64decode(fields.pop("manifest"))
        return cls(manifest=manifest, cuts=tuple(fields.pop("cuts")), **fields)


class History:
    """The history of one table. Thread-safe."""

    def __init__(self, store: TableStore, table: str) -> None:
        """Takes up what the store has recorded."""
        self._store = store
        self._table = table
        self._gate = Gate()
        stored = store.load_history()
        self._record = Record() if stored is None else Record.decode(stored)
        if stored is not None and store.reopen(self._record.committed):
            self._go_on_from_committed()
        store.keep_undo(self._record.cuts[-1] if self._record.cuts else None)

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
            if checkpoint in record.cuts:
                return True
            if checkpoint < max((record.arriving, *record.cuts)):
                raise FailedPrecondition(f"cut {checkpoint} comes too late, cut {max(record.cuts, default=0)} is there")
            arrived = (record.arrived if record.arriving == checkpoint else 0) | 1 << worker
            complete = arrived & contributors == contributors
            if complete:
                self._write(replace(record, cuts=(*record.cuts, checkpoint), arriving=0, arrived=0))
                self._store.keep_undo(checkpoint)
            else:
                self._write(replace(record, arriving=checkpoint, arrived=arrived))
            return complete

    def check_complete(self, epoch: int, checkpoint: int) -> None:
        """Raises FailedPrecondition unless the cut is complete, StaleEpoch if the epoch is not the table's."""
        self.check(epoch)
        if checkpoint not in self._record.cuts:
            raise FailedPrecondition(f"cut {checkpoint} of table {self._table!r} is not complete")

    def commit(self, epoch: int, checkpoint: int, manifest: bytes) -> None:
        """Makes a checkpoint the valid one and drops what is older; checkpoint 0 is the table as it was created.

        Raises:
            FailedPrecondition: the cut is not complete.
            StaleEpoch: the epoch is not the table's.
        """
        if checkpoint:
            self.check_complete(epoch, checkpoint)
        with self._gate.closed():
            self.check(epoch)
            record = self._record
            older = [cut for cut in record.cuts if cut < checkpoint]
            kept = tuple(cut for cut in record.cuts if cut >= checkpoint)
            self._write(replace(record, cuts=kept, committed=checkpoint, manifest=manifest))
        for cut in older:
            self._store.forget_undo(cut)
            self._store.drop_parts(cut)

    def restore(self, checkpoint: int, epoch: int) -> int:
        """Puts the rows back to a cut and begins an epoch; how many rows had to be put back.

        Raises:
            FailedPrecondition: there is no way back to that cut.
            StaleEpoch: a later epoch has begun.
        """
        with self._gate.closed():
            record = self._record
            self._check_begins(epoch)
            if checkpoint and checkpoint not in record.cuts:
                raise FailedPrecondition(
                    f"table {self._table!r} cannot go back to checkpoint {checkpoint}: this server holds "
                    f"{list(record.cuts) or 'none'}; one with its store in memory loses them when it is restarted"
                )
            changed = 0
            for cut in reversed([cut for cut in record.cuts if cut >= checkpoint]):
                changed += self._store.undo(cut)
            if not checkpoint:
                self._store.clear()
            self._store.partials.clear()
            kept = (checkpoint,) if checkpoint else ()
            self._write(replace(record, epoch=epoch, cuts=kept, arriving=0, arrived=0))
            self._store.keep_undo(checkpoint or None)
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
        """What came after the committed cut is lost, so the epoch is over."""
        record = self._record
        cuts = (record.committed,) if record.committed else ()
        self._write(replace(record, epoch=record.epoch + 1, cuts=cuts, arriving=0, arrived=0))

    def save(self, epoch: int, checkpoint: int) -> tuple[int, int]:
        """Makes a complete cut durable; rows and bytes that had to be written.

        Raises:
            FailedPrecondition: the cut is not complete.
            StaleEpoch: the epoch is not the table's.
        """
        self.check_complete(epoch, checkpoint)
        return self._store.save(checkpoint)

    def _write(self, record: Record) -> None:
        self._store.save_history(record.encode())
        self._record = record
