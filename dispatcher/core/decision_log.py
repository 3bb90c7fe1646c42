"""The decision log: everything that a job's plans depend on besides its samples, so that they can be made again.

Every line is a JSON object: the kind of a record, and its fields. The first line is the job. A last line that was cut
short, because its writer was killed, is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from esd.services.domain.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True, slots=True)
class JobOpened:
    """The job's specification as JSON."""

    job: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """An epoch began: who trains in it, over which links and with which caches.

    Attributes:
        epoch: its number.
        first: its first iteration.
        workloads: m_j, [n]; 0 for a worker that is away.
        workload_limits: least and most samples of a worker, when workloads are balanced.
        bandwidths: bytes per second of each worker's link as registered, [n].
        cache_rows: rows of each worker's cache, [n].
        worker_limits: the least and the most samples that each worker takes, [n]; none: any number.
        members: the slots of the workers that train; none: all.
        warm: whether caches begin as they were at the checkpoint; else empty, as where a worker has another one now.
    """

    epoch: int
    first: int
    workloads: list[int]
    workload_limits: list[int] | None
    bandwidths: list[float]
    cache_rows: list[int]
    worker_limits: list[list[int]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    warm: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    """Feedback that the planner took in before its next decision; see esd.dispatcher.core.feedback.Feedback."""

    seconds: list[float]
    bandwidths: list[float]
    necessary_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointPlanned:
    """A checkpoint before `iteration`, to which an epoch may go back."""

    iteration: int


@dataclass(frozen=True, slots=True)
class IterationPlanned:
    """All workers were given plans of an iteration.

    Attributes:
        iteration: its number.
        digest: tells whether a replay makes the same plans.
        efforts: what the decision used a limited time for; see esd.dispatcher.core.decision_time.
    """

    iteration: int
    digest: str
    efforts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream ended before `iteration`, and the flush was planned."""

    iteration: int


Record = JobOpened | EpochBegan | Observed | CheckpointPlanned | IterationPlanned | StreamEnded
_KINDS: dict[str, type[Record]] = {
    "job": JobOpened,
    "epoch": EpochBegan,
    "observed": Observed,
    "checkpoint": CheckpointPlanned,
    "planned": IterationPlanned,
    "end": StreamEnded,
}
_NAMES = {record: name for name, record in _KINDS.items()}


class DecisionLog:
    """A log that is being written. When `add` returns, the record is with the operating system, not yet on the disk."""

    def __init__(self, path: Path, job: dict[str, Any], *, resume: bool) -> None:
        """Begins a log, or goes on with one.

        Args:
            path: the file.
            job: the job's specification as JSON.
            resume: whether the job goes on from a checkpoint, so that what the file says so far is kept.

        Raises:
            FailedPrecondition: the file cannot be written.
        """
        self._path = path
        try:
            if resume and path.exists():
                _drop_cut_line(path)
                self._file = path.open("a")
            else:
                self._file = path.open("w")
                self.add(JobOpened(job))
        except OSError as error:
            raise self._failure(error) from None

    def add(self, record: Record) -> None:
        """Writes one record. Raises FailedPrecondition when the file cannot be written."""
        try:
            self._file.write(json.dumps({"kind": _NAMES[type(record)]} | asdict(record)) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Closes the file. What `add` could not write is lost, as it has said."""
        with suppress(OSError):
            self._file.close()

    def _failure(self, error: OSError) -> FailedPrecondition:
        return FailedPrecondition(f"the decision log {self._path} cannot be written: {error.strerror}")


def read_decisions(path: Path) -> Iterator[Record]:
    """Yields the records of a log, the job first.

    Raises:
        InvalidArgument: the file cannot be read or is no decision log; the message names the line.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _parse(path, number, line)
    except OSError as error:
        raise InvalidArgument(f"decision log {path} cannot be read: {error.strerror}") from None


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        fields = json.loads(line)
        record = _KINDS[fields.pop("kind")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidArgument(f"decision log {path}, line {number}: this is no record of a decision log") from None
    if (number == 1) != isinstance(record, JobOpened):
        raise InvalidArgument(f"decision log {path}, line {number}: the job has to be the first record and no other")
    return record


def _drop_cut_line(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if not whole:
        raise FailedPrecondition(f"the decision log {path} does not hold the beginning of the job that goes on")
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
