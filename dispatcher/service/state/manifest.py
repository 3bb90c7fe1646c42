"""The manifest of a checkpoint: a small JSON document, written last, which makes the checkpoint valid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import DispatchOptions, JobSpec
from esd.services.domain.reports import PhaseTimes, TransferCounts
from esd.services.domain.state import Evaluation, Quality
from esd.services.wire.jobs import encode_job

_FORMAT = 3
DENSE = "dense"  # the part that the leading worker writes; the others are the dispatcher's


@dataclass(frozen=True, slots=True)
class SavedWorker:
    """A worker as a checkpoint keeps it: its link, its cache, and its totals at that point."""

    name: str
    bandwidth: float
    cache_rows: int
    transfers: TransferCounts
    phases: PhaseTimes


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describes a checkpoint.

    Attributes:
        job: the job's specification as JSON; see `describe_job`.
        iteration: the iteration that follows the checkpoint, which is its name. At 0 nothing is trained.
        samples: how many samples of the stream are trained.
        workers: the workers by slot; empty at iteration 0.
        planned: the totals of the plans before the checkpoint; see `JobTotals.save_planned`.
        checksums: SHA-256 of each part, by name.
        finished: whether the stream ends here, and all of the job is done.
        time: when the checkpoint was committed, in seconds since 1970.
        changed: how many rows changed since the checkpoint before, on all servers.
        size: how many bytes these rows and the parts take.
        cuts: the iterations before which checkpoints were taken so far, ascending, this one included; with them, the
            same stream gives the same plans.
        evaluations: the latest ones of held-out samples that were recorded before it was committed, by iteration.
    """

    job: dict[str, Any]
    iteration: int = 0
    samples: int = 0
    workers: tuple[SavedWorker, ...] = ()
    planned: dict[str, float] | None = None
    checksums: dict[str, str] | None = None
    finished: bool = False
    time: float = 0.0
    changed: int = 0
    size: int = 0
    cuts: tuple[int, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()

    def encode(self) -> bytes:
        """Writes the manifest as JSON, in UTF-8."""
        workers = [
            asdict(worker) | {"transfers": worker.transfers._asdict(), "phases": worker.phases._asdict()}
            for worker in self.workers
        ]
        return json.dumps({"format": _FORMAT} | asdict(self) | {"workers": workers}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Reads what `encode` wrote. Raises FailedPrecondition if it is of another version, or damaged."""
        try:
            saved = json.loads(data)
            if saved.pop("format") != _FORMAT:
                raise FailedPrecondition("the checkpoint was written by another version")
            saved["cuts"] = tuple(saved.get("cuts", ()))
            saved["evaluations"] = tuple(map(_evaluation, saved.get("evaluations", ())))
            workers = tuple(
                SavedWorker(
                    **worker
                    | {"transfers": TransferCounts(**worker["transfers"]), "phases": PhaseTimes(**worker["phases"])}
                )
                for worker in saved.pop("workers")
            )
            return cls(workers=workers, **saved)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise FailedPrecondition(
                "the manifest of a checkpoint is damaged; `esd checkpoint` tells which checkpoints are whole, and goes "
                "back to one"
            ) from None

    def has_part(self, name: str) -> bool:
        """Tells whether the checkpoint has a part of this name; earlier versions wrote fewer."""
        return name in (self.checksums or {})

    def check_part(self, name: str, data: bytes) -> None:
        """Raises FailedPrecondition unless the part is the one that was written."""
        if (self.checksums or {}).get(name) != checksum(data):
            raise FailedPrecondition(
                f"part {name!r} of checkpoint {self.iteration} is damaged: its checksum differs; `esd checkpoint` "
                "tells which checkpoints are whole, and goes back to one"
            )

    def workers_of(self, workers: int) -> tuple[SavedWorker, ...]:
        """Returns the workers by slot for a job with as many slots; none if the checkpoint has another number."""
        return self.workers if len(self.workers) == workers else ()

    def fits(self, policy: str, cache_rows: Sequence[int]) -> bool:
        """Tells whether workers with these caches, by slot, can fill them as they were at the checkpoint."""
        return self.job["policy"] == policy and [worker.cache_rows for worker in self.workers] == list(cache_rows)

    def differences(self, job: JobSpec) -> list[str]:
        """Returns the names of the fields by which a job's model would differ from the one of the checkpoint's job."""
        asked = describe_job(job)
        names = (asked.keys() | self.job.keys()) - {option.name for option in fields(DispatchOptions)} - {"name"}
        return sorted(name for name in names if asked.get(name) != self.job.get(name))


def _evaluation(saved: dict[str, Any]) -> Evaluation:
    return Evaluation(saved["iteration"], tuple(Quality(**label) for label in saved["labels"]))


def checksum(data: bytes) -> str:
    """Returns the SHA-256 of a part, in hex."""
    return sha256(data).hexdigest()


def describe_job(job: JobSpec) -> dict[str, Any]:
    """Returns a job's specification as JSON, without what may change from run to run.

    That is the servers' addresses, and the row limit of a table that forgets no rows.
    """
    message = encode_job(replace(job, parameter_servers=("any",), max_rows=job.rows_kept))
    described: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return described
