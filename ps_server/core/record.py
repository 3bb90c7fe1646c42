"""What of a table's history must last: its epoch, its cuts, its committed checkpoints."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

from services.domain.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class Cut:
    """A complete cut that there is a way back to.

    Attributes:
        iteration: that follows it; its name.
        rows: that this server had stored.
        versions: how often they were trained, together. With `rows`, what a look at the cut must find again.
    """

    iteration: int
    rows: int
    versions: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A valid checkpoint: its cut (0: the table as it was created), and the manifest, on shard 0 only."""

    cut: int
    manifest: bytes


NOTHING = Committed(0, b"")


@dataclass(frozen=True, slots=True)
class Record:
    """The lasting part of a history.

    Attributes:
        epoch: whose requests are served.
        cuts: ascending; changes are recorded under the last.
        committed: the checkpoints that can be gone back to, ascending.
        arriving: the cut that workers are reporting for; 0: none.
        arrived: mask of the worker slots that have.
        outdated: cuts of the past, parts of which may still have to be dropped.
    """

    epoch: int = 0
    cuts: tuple[Cut, ...] = ()
    committed: tuple[Committed, ...] = ()
    arriving: int = 0
    arrived: int = 0
    outdated: tuple[int, ...] = ()

    @property
    def iterations(self) -> tuple[int, ...]:
        """The names of the cuts, ascending."""
        return tuple(cut.iteration for cut in self.cuts)

    @property
    def last(self) -> Committed:
        """The checkpoint that a recovery goes back to."""
        return self.committed[-1] if self.committed else NOTHING

    def has(self, iteration: int) -> bool:
        """Whether there is such a cut."""
        return iteration in self.iterations

    def committing(self, checkpoint: Committed, keep: int) -> Record:
        """With one more committed checkpoint; the last `keep` of them stay, with their cuts."""
        committed = (*(each for each in self.committed if each.cut < checkpoint.cut), checkpoint)[-keep:]
        return _with_cuts_in(replace(self, committed=committed), committed[0].cut, self.last_iteration)

    def going_back_to(self, iteration: int) -> Record:
        """Without what came after a cut."""
        committed = tuple(each for each in self.committed if each.cut <= iteration)
        return _with_cuts_in(replace(self, committed=committed, arriving=0, arrived=0), 0, iteration)

    @property
    def last_iteration(self) -> int:
        """The name of the last cut, 0 if there is none."""
        return max(self.iterations, default=0)

    def encode(self) -> bytes:
        """As JSON with a checksum."""
        committed = [{"cut": each.cut, "manifest": base64.b64encode(each.manifest).decode()} for each in self.committed]
        fields = asdict(self) | {"committed": committed}
        return json.dumps({"record": fields, "sha256": _checksum(fields)}).encode()

    @classmethod
    def decode(cls, data: bytes, place: str = "this store") -> Record:
        """Reads what `encode` made and `place` has kept. Raises FailedPrecondition if it is damaged."""
        try:
            document = json.loads(data)
            fields = document["record"]
            whole = document["sha256"] == _checksum(fields)
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise FailedPrecondition(f"the record of checkpoints in {place} is damaged: its checksum differs")
        return cls(
            epoch=fields["epoch"],
            cuts=tuple(Cut(**cut) for cut in fields["cuts"]),
            committed=tuple(Committed(each["cut"], base64.b64decode(each["manifest"])) for each in fields["committed"]),
            arriving=fields["arriving"],
            arrived=fields["arrived"],
            outdated=tuple(fields["outdated"]),
        )


def shared_out(records: Sequence[Record], shard: int) -> Record:
    """The record of one shard after the number of shards has changed; `records` are those of all shards before.

    Nothing may be changed before a restore: until then the shards before may have been at different cuts, to all of
    which there is a way back. What all had stored counts as the first shard's, and the first shard has the manifests.
    """
    totals: dict[int, Cut] = {}
    for record in records:
        for cut in record.cuts:
            before = totals.get(cut.iteration, Cut(cut.iteration, 0, 0))
            totals[cut.iteration] = Cut(cut.iteration, before.rows + cut.rows, before.versions + cut.versions)
    first = shard == 0
    return Record(
        epoch=max(record.epoch for record in records) + 1,
        cuts=tuple(totals[name] if first else Cut(name, 0, 0) for name in sorted(totals)),
        committed=tuple(each if first else Committed(each.cut, b"") for each in records[0].committed),
        outdated=tuple(sorted({cut for record in records for cut in record.outdated} - set(totals))),
    )


def _with_cuts_in(record: Record, first: int, last: int) -> Record:
    cuts = tuple(cut for cut in record.cuts if first <= cut.iteration <= last)
    dropped = {cut.iteration for cut in set(record.cuts) - set(cuts)}
    return replace(record, cuts=cuts, outdated=tuple(sorted({*record.outdated, *dropped})))


def _checksum(fields: object) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
