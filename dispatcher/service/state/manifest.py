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
from esd.services.domain.sources import SourcePosition
from esd.services.domain.state import Evaluation, Quality, Ranking
from esd.services.domain.stream_parts import StreamPart, StreamPlace
from esd.services.wire.jobs import encode_job

_FORMAT = 3
# Of a job. The manifests of earlier versions lack these, and the keys of features: they are unknown then.
_ADDED = ("dense_names", "rules")
DENSE = "dense"  # the leading worker writes this part; the dispatcher writes the others


@dataclass(frozen=True, slots=True)
class SavedWorker:
    """A worker in a checkpoint: its link, its cache, and its totals at that point."""

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
        iteration: the iteration that follows the checkpoint, which identifies it. At 0 no iteration is trained.
        samples: the number of trained samples of the stream.
        place: the place of the stream before the next sample; None: its beginning.
        workers: the workers by slot; empty at iteration 0.
        planned: the totals of the plans before the checkpoint; see `JobTotals.save_planned`.
        checksums: SHA-256 of each part, by name.
        finished: whether the stream ends here, and the job is complete.
        time: the time of the commit, in seconds since 1970.
        changed: the number of rows changed since the previous checkpoint, on all servers.
        size: the size of these rows and of the parts, in bytes.
        cuts: the iterations before which checkpoints were taken, ascending, this one included. A checkpoint changes the
            plans after it, so the same stream gives the same plans only with the same cuts.
        evaluations: the latest evaluations on held-out samples before the commit, by iteration.
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
    place: StreamPlace | None = None

    def encode(self) -> bytes:
        """Encodes the manifest as JSON, in UTF-8."""
        workers = [
            asdict(worker) | {"transfers": worker.transfers._asdict(), "phases": worker.phases._asdict()}
            for worker in self.workers
        ]
        return json.dumps({"format": _FORMAT} | asdict(self) | {"workers": workers}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Decodes the result of `encode`. Raises FailedPrecondition if it has another format version, or is damaged."""
        try:
            saved = json.loads(data)
            if saved.pop("format") != _FORMAT:
                raise FailedPrecondition("the checkpoint was written by another version")
            saved["cuts"] = tuple(saved.get("cuts", ()))
            saved["evaluations"] = tuple(map(_evaluation, saved.get("evaluations", ())))
            saved["place"] = _place(saved)
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
                "the manifest of a checkpoint is damaged; `esd checkpoint` lists the intact checkpoints, and restores "
                "one"
            ) from None

    def has_part(self, name: str) -> bool:
        """Returns whether the checkpoint has a part of this name; earlier versions wrote fewer."""
        return name in (self.checksums or {})

    def check_part(self, name: str, data: bytes) -> None:
        """Raises FailedPrecondition unless the part has the checksum with which it was written."""
        if (self.checksums or {}).get(name) != checksum(data):
            raise FailedPrecondition(
                f"part {name!r} of checkpoint {self.iteration} is damaged: its checksum differs; `esd checkpoint` "
                "lists the intact checkpoints, and restores one"
            )

    def workers_of(self, workers: int) -> tuple[SavedWorker, ...]:
        """Returns the workers by slot; none if the checkpoint's number of slots differs from `workers`."""
        return self.workers if len(self.workers) == workers else ()

    def fits(self, policy: str, cache_rows: Sequence[int]) -> bool:
        """Returns whether caches of these sizes, by slot, can hold their content at the checkpoint."""
        return self.job["policy"] == policy and [worker.cache_rows for worker in self.workers] == list(cache_rows)

    def differences(self, job: JobSpec) -> list[str]:
        """Returns the names of the fields that change the model and differ from the checkpoint's job."""
        asked = describe_job(job)
        if "rules" not in self.job:  # not made by a schema, or by an earlier version
            asked["features"] = [{k: v for k, v in each.items() if k != "key"} for each in asked["features"]]
        options = {option.name for option in fields(DispatchOptions)} | {"name"}
        names = {field.name for field in fields(JobSpec)} - options
        names -= {name for name in _ADDED if name not in self.job}
        return sorted(name for name in names if asked.get(name) != self.job.get(name))


def _place(saved: dict[str, Any]) -> StreamPlace | None:
    """Takes the place of the stream out of a decoded manifest. Earlier versions wrote the source of its only part."""
    earlier = {"parts": [{"share": saved["job"].get("batch_size", 1), "samples": saved["samples"]}]}
    earlier["parts"][0]["source"] = saved.pop("source", None)
    place = saved.get("place", earlier if saved["samples"] else None)
    if place is None:
        return None
    return StreamPlace(**place | {"parts": tuple(map(_part, place["parts"]))})


def _part(saved: dict[str, Any]) -> StreamPart:
    source = saved["source"]
    return StreamPart(**saved | {"source": None if source is None else SourcePosition(**source)})


def _evaluation(saved: dict[str, Any]) -> Evaluation:
    labels = tuple(Quality(**label) for label in saved["labels"])
    ranking = saved.get("ranking")
    samples = saved.get("samples", "")  # earlier versions wrote no name
    return Evaluation(saved["iteration"], labels, samples, None if ranking is None else Ranking(**ranking))


def checksum(data: bytes) -> str:
    """Returns the SHA-256 of a part, in hex."""
    return sha256(data).hexdigest()


def describe_job(job: JobSpec) -> dict[str, Any]:
    """Returns a job's specification as JSON, without the values that may change from run to run.

    These are the servers' addresses, and the row limit of a table that never forgets rows.
    """
    message = encode_job(replace(job, parameter_servers=("any",), max_rows=job.rows_kept))
    described: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return described
