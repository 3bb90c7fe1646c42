"""What makes a checkpoint: a small JSON document, written last."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from google.protobuf.json_format import MessageToDict

from services.domain.errors import FailedPrecondition
from services.domain.jobs import JobSpec
from services.domain.reports import PhaseTimes, TransferCounts
from services.wire.jobs import encode_job

_FORMAT = 1
PARTS = ("engine", "progress")  # written by the dispatcher; the leading worker adds `dense`


@dataclass(frozen=True, slots=True)
class SavedWorker:
    """A worker as a checkpoint knows it: by slot, with its totals."""

    name: str
    bandwidth: float
    cache_rows: int
    transfers: TransferCounts
    phases: PhaseTimes


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint.

    Attributes:
        job: the job's specification as JSON; see `describe_job`.
        iteration: that follows the cut; the checkpoint's name. 0: nothing is trained.
        samples: of the stream, that are trained.
        workers: by slot; empty at iteration 0.
        planned: totals of the plans before the cut.
        checksums: SHA-256 of each part in PARTS.
        finished: whether the stream ends here, and all of the job is done.
    """

    job: dict[str, Any]
    iteration: int = 0
    samples: int = 0
    workers: tuple[SavedWorker, ...] = ()
    planned: dict[str, float] | None = None
    checksums: dict[str, str] | None = None
    finished: bool = False

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps({"format": _FORMAT} | asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Reads what `encode` made. Raises FailedPrecondition for another format."""
        fields = json.loads(data)
        if fields.pop("format") != _FORMAT:
            raise FailedPrecondition("the checkpoint was written by another version")
        workers = tuple(
            SavedWorker(
                **worker
                | {"transfers": TransferCounts(**worker["transfers"]), "phases": PhaseTimes(**worker["phases"])}
            )
            for worker in fields.pop("workers")
        )
        return cls(workers=workers, **fields)

    def check_part(self, name: str, data: bytes) -> None:
        """Raises FailedPrecondition unless the part is the one that was written."""
        if (self.checksums or {}).get(name) != checksum(data):
            raise FailedPrecondition(f"part {name!r} of checkpoint {self.iteration} is damaged: its checksum differs")


def checksum(data: bytes) -> str:
    """SHA-256."""
    return sha256(data).hexdigest()


def describe_job(job: JobSpec) -> dict[str, Any]:
    """A job's specification as JSON, without what may change between runs: the servers' addresses, the most rows."""
    message = encode_job(replace(job, parameter_servers=("any",), max_rows=0))
    described: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return described
