"""The part of a table's history that outlives the process: epoch, cuts and checkpoints (docs/recovery-protocol.md)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

from esd.services.domain.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class Cut:
    """A complete cut, which the rows can return to.

    Attributes:
        iteration: names the cut by the iteration that follows it.
        rows: number of rows that this server had stored.
        trainings: how often these rows had been trained, in total. A verification must find both numbers again.
    """

    iteration: int
    rows: int
    trainings: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
        iteration: names its cut; 0: the table as it was created.
        manifest: the dispatcher's description of the checkpoint, on shard 0; empty on the other shards.
    """

    iteration: int
    manifest: bytes


_NO_CHECKPOINT = Checkpoint(0, b"")


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """The durable part of a table's history.

    Attributes:
        epoch: the epoch whose requests are served.
        claimant: random name of the dispatcher that last began an epoch here, or of the job without epochs that has
            claimed the table; empty: the table is unclaimed.
        claimed: the epoch that the claimant began. A later `epoch` has no claimant: the server began it itself after
            it had lost rows, or `esd checkpoint restore` began it while no server ran.
        cuts: the complete cuts, ascending; pre-images are kept for the last.
        committed: the checkpoints that the rows can return to, ascending.
        arriving: the cut that workers are reporting for; 0: none.
        arrived: mask of the worker slots that have reported.
        outdated_cuts: dropped cuts whose data may not be removed completely yet.
        finished: whether the job that trains the table has ended. The table then refuses writes until a restore.
        saved: the cut that was last made durable, until it is committed. If the process dies before it learns of the
            commit, its successor still needs the cut, because it may be a checkpoint on the other shards.
        restored: the checkpoint that the rows returned to when the epoch began; None: it began without a restore.
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
        """The cut of the checkpoint that a recovery returns to; a cut without rows if that is the table's creation."""
        return next((cut for cut in self.cuts if cut.iteration == self.last.iteration), Cut(0, 0, 0))

    @property
    def last(self) -> Checkpoint:
        """The checkpoint that a recovery returns to."""
        return self.committed[-1] if self.committed else _NO_CHECKPOINT

    def is_of_another(self, claimant: bytes) -> bool:
        """Returns whether another dispatcher has begun the present epoch."""
        return self.claimed == self.epoch and self.has_another(claimant)

    def has_another(self, claimant: bytes) -> bool:
        """Returns whether the last dispatcher to begin an epoch here is another one."""
        return self.claimant not in (b"", claimant)

    def claimed_by(self, claimant: bytes, epoch: int) -> HistoryRecord:
        """Returns the record with `claimant` as the owner of epoch `epoch`."""
        restored = self.restored if epoch == self.claimed else None
        return replace(self, epoch=epoch, restored=restored, claimant=claimant, claimed=epoch)

    def has(self, iteration: int) -> bool:
        """Returns whether the cut exists."""
        return iteration in self.iterations

    def is_saved_only(self, iteration: int) -> bool:
        """Returns whether this is the cut saved by an earlier process: readable, but no file may build on it."""
        return self.saved is not None and self.saved.iteration == iteration and not self.has(iteration)

    def committing(self, checkpoint: Checkpoint, keep: int) -> HistoryRecord:
        """Returns the record with one more checkpoint; only the last `keep` checkpoints stay, with their cuts."""
        earlier = (each for each in self.committed if each.iteration < checkpoint.iteration)
        committed = (*earlier, checkpoint)[-keep:]
        return _with_cuts_in(
            replace(self, committed=committed, saved=None), committed[0].iteration, self.last_iteration
        )

    def going_back_to(self, iteration: int) -> HistoryRecord:
        """Returns the record without everything after a cut, which becomes the last checkpoint."""
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
        """Reads the output of `encode` as `place` has kept it. Raises FailedPrecondition if it is damaged."""
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
                    # Records of earlier versions lack these fields.
                    restored=fields.get("restored"),
                    claimant=bytes.fromhex(fields.get("claimant", "")),
                    claimed=fields.get("claimed", 0),
                )
        except (ValueError, TypeError, KeyError):
            pass
        raise FailedPrecondition(f"the record of checkpoints in {place} is damaged: its checksum differs")


def resharded(records: Sequence[HistoryRecord], shard: int) -> HistoryRecord:
    """Returns the record of one shard after the number of shards has changed.

    The rows must not change before a restore: the earlier shards may have been at different cuts, and the rows can
    still return to each of them. The totals of all earlier shards are booked on shard 0, which also has the manifests.

    Args:
        records: the records of all earlier shards, by index.
        shard: index of the new shard.
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
