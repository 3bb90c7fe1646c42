"""What of a table's history must outlive the process: its epoch, its cuts and its checkpoints (docs/recovery.md)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

from esd.services.domain.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class Cut:
    """A complete cut that there is a way back to.

    Attributes:
        iteration: the iteration that follows the cut, which names it.
        rows: how many rows this server had stored.
        trainings: how often they had been trained, summed over rows. A look at the cut must find both numbers again.
    """

    iteration: int
    rows: int
    trainings: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
        iteration: names its cut; 0: the table as it was created.
        manifest: what the dispatcher has written about it, on shard 0; empty on the others.
    """

    iteration: int
    manifest: bytes


_NO_CHECKPOINT = Checkpoint(0, b"")


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """What of a table's history must outlive the process.

    Attributes:
        epoch: the epoch whose requests are served.
        claimant: the dispatcher that has begun an epoch here last, by its random name, or the job without epochs that
            has claimed the table; empty: none has.
        claimed: the epoch that it has begun. A later one is nobody's: the server has begun it by itself, as it had lost
            rows, or somebody has gone back to a checkpoint while no server ran.
        cuts: the complete cuts, ascending; pre-images are kept for the last.
        committed: the checkpoints that can be gone back to, ascending.
        arriving: the cut that workers are reporting for; 0: none.
        arrived: mask of the worker slots that have reported.
        outdated_cuts: cuts of the past, of which something may still have to be dropped.
        finished: whether the job that trains the table has ended. Nothing is written then until a way back is taken.
        saved: the cut that was made durable last, until it is committed. Who takes over from a process that died before
            it heard of the commit must still have it, since it may be a checkpoint on the other shards.
        restored: the checkpoint that the rows were put back to when the epoch began; None: they were not.
    """

    epoch: int = 0
    cuts: tuple[Cut, ...] = ()
    committed: tuple[Checkpoint, ...] = ()
    arriving: int = 0
    arrived: int = 0
    outdated_cuts: tuple[int, ...] = ()
    finished: bool = False
    saved: Cut | None = None
    restored: int | None = None
    claimant: bytes = b""
    claimed: int = 0

    @property
    def iterations(self) -> tuple[int, ...]:
        """The names of the cuts, ascending."""
        return tuple(cut.iteration for cut in self.cuts)

    @property
    def last_iteration(self) -> int:
        """The name of the last cut, 0 if there is none."""
        return max(self.iterations, default=0)

    @property
    def last_cut(self) -> Cut:
        """The cut of the checkpoint that a recovery goes back to; one without rows if that is the table's creation."""
        return next((cut for cut in self.cuts if cut.iteration == self.last.iteration), Cut(0, 0, 0))

    @property
    def last(self) -> Checkpoint:
        """The checkpoint that a recovery goes back to."""
        return self.committed[-1] if self.committed else _NO_CHECKPOINT

    def is_of_another(self, claimant: bytes) -> bool:
        """Tells whether the present epoch is that of another dispatcher."""
        return self.claimed == self.epoch and self.has_another(claimant)

    def has_another(self, claimant: bytes) -> bool:
        """Tells whether another dispatcher has the table: the latest that has begun an epoch."""
        return self.claimant not in (b"", claimant)

    def claimed_by(self, claimant: bytes, epoch: int) -> HistoryRecord:
        """Returns the record in an epoch that is this dispatcher's."""
        restored = self.restored if epoch == self.claimed else None
        return replace(self, epoch=epoch, restored=restored, claimant=claimant, claimed=epoch)

    def has(self, iteration: int) -> bool:
        """Tells whether there is such a cut."""
        return iteration in self.iterations

    def is_saved_only(self, iteration: int) -> bool:
        """Tells whether this is the saved cut, of a process before: it can be read, and nothing builds on it."""
        return self.saved is not None and self.saved.iteration == iteration and not self.has(iteration)

    def committing(self, checkpoint: Checkpoint, keep: int) -> HistoryRecord:
        """Returns the record with one more checkpoint; the last `keep` checkpoints stay, with their cuts."""
        earlier = (each for each in self.committed if each.iteration < checkpoint.iteration)
        committed = (*earlier, checkpoint)[-keep:]
        return _with_cuts_in(
            replace(self, committed=committed, saved=None), committed[0].iteration, self.last_iteration
        )

    def going_back_to(self, iteration: int) -> HistoryRecord:
        """Returns the record without what came after a cut, which is a checkpoint from then on."""
        record = self
        if record.saved is not None and not record.has(record.saved.iteration):
            record = replace(record, cuts=(*record.cuts, record.saved))
        committed = tuple(each for each in record.committed if each.iteration <= iteration)
        if iteration and (not committed or committed[-1].iteration < iteration):
            committed = (*committed, Checkpoint(iteration, b""))  # the other shards have it; the first has the manifest
        record = replace(record, committed=committed, arriving=0, arrived=0, saved=None)
        return _with_cuts_in(record, 0, iteration)

    def encode(self) -> bytes:
        """Returns the record as JSON with a checksum."""
        committed = [
            {"iteration": each.iteration, "manifest": base64.b64encode(each.manifest).decode()}
            for each in self.committed
        ]
        fields = asdict(self) | {"committed": committed, "claimant": self.claimant.hex()}
        return json.dumps({"record": fields, "sha256": _checksum(fields)}).encode()

    @classmethod
    def decode(cls, data: bytes, place: str = "this store") -> HistoryRecord:
        """Reads what `encode` has made and `place` has kept. Raises FailedPrecondition if it is damaged."""
        try:
            document = json.loads(data)
            fields = document["record"]
            if document["sha256"] == _checksum(fields):
                return cls(
                    epoch=fields["epoch"],
                    cuts=tuple(Cut(**cut) for cut in fields["cuts"]),
                    committed=tuple(
                        Checkpoint(each["iteration"], base64.b64decode(each["manifest"]))
                        for each in fields["committed"]
                    ),
                    arriving=fields["arriving"],
                    arrived=fields["arrived"],
                    outdated_cuts=tuple(fields["outdated_cuts"]),
                    finished=fields["finished"],
                    saved=None if fields["saved"] is None else Cut(**fields["saved"]),
                    # Earlier versions have not recorded these.
                    restored=fields.get("restored"),
                    claimant=bytes.fromhex(fields.get("claimant", "")),
                    claimed=fields.get("claimed", 0),
                )
        except (ValueError, TypeError, KeyError):
            pass
        raise FailedPrecondition(f"the record of checkpoints in {place} is damaged: its checksum differs")


def resharded(records: Sequence[HistoryRecord], shard: int) -> HistoryRecord:
    """Returns the record of one shard after the number of shards has changed.

    Nothing may be changed before a restore: until then the shards before may have been at different cuts, to all of
    which there is a way back. What all of them had stored counts as the first shard's, which also has the manifests.

    Args:
        records: those of all shards before, by their index.
        shard: index of the shard that the record is for.
    """
    totals: dict[int, Cut] = {}
    for record in records:
        for cut in record.cuts:
            before = totals.get(cut.iteration, Cut(cut.iteration, 0, 0))
            totals[cut.iteration] = Cut(cut.iteration, before.rows + cut.rows, before.trainings + cut.trainings)
    first = shard == 0
    return HistoryRecord(
        epoch=max(record.epoch for record in records) + 1,
        cuts=tuple(totals[name] if first else Cut(name, 0, 0) for name in sorted(totals)),
        committed=tuple(each if first else Checkpoint(each.iteration, b"") for each in records[0].committed),
        outdated_cuts=tuple(sorted({cut for record in records for cut in record.outdated_cuts} - set(totals))),
        finished=all(record.finished for record in records),
        claimant=records[0].claimant,
        claimed=records[0].claimed,
    )


def _with_cuts_in(record: HistoryRecord, first: int, last: int) -> HistoryRecord:
    """Returns the record with the cuts from `first` to `last` only; the others are outdated."""
    cuts = tuple(cut for cut in record.cuts if first <= cut.iteration <= last)
    dropped = {cut.iteration for cut in set(record.cuts) - set(cuts)}
    return replace(record, cuts=cuts, outdated_cuts=tuple(sorted({*record.outdated_cuts, *dropped})))


def _checksum(fields: object) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
