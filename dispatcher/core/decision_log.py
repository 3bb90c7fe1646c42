"""The decision log: all inputs of a job's plans other than its samples, from which a replay makes the same plans.

Every line is a JSON object with the kind of a record and its fields. The first line is the job. A last line without a
newline, whose writer was killed, is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esd.dispatcher.core.feedback import Feedback
from esd.services.domain.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True, slots=True)
class JobOpened:
    """The job's specification as JSON."""

    job: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """An epoch began, with these members, links and caches.

    Attributes:
        epoch: its number.
        first: its first iteration.
        workloads: m_j, [n]; 0 for a worker that is away.
        workload_limits: smallest and largest number of samples of a worker, when workloads are balanced.
        bandwidths: bytes per second of each worker's link as registered, [n].
        cache_rows: rows of each worker's cache, [n].
        worker_limits: smallest and largest number of samples that each worker accepts, [n]; empty without limits.
        members: the slots of the workers that train; empty for all slots.
        warm: whether caches start with their content at the checkpoint. They start empty if a cache has changed since.
        dense_sum: how dense gradients are summed, as `--dense` has it; empty: as the job names it.
        rests: whether workers rest while they have no samples, if the job lets them.
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
    dense_sum: str = ""
    rests: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Feedback that the planner observed before its next decision; see esd.dispatcher.core.feedback.Feedback."""

    seconds: list[float]
    bandwidths: list[float]
    necessary_seconds: float = 0.0
    dense_seconds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, feedback: Feedback) -> Observed:
        """Returns the record of a feedback."""
        measured = feedback.seconds.tolist(), feedback.bandwidths.tolist()
        dense = [] if feedback.dense_seconds is None else feedback.dense_seconds.tolist()
        return cls(*measured, feedback.necessary_seconds, dense)

    def feedback(self) -> Feedback:
        """Returns the recorded feedback."""
        dense = np.array(self.dense_seconds) if self.dense_seconds else None
        return Feedback(np.array(self.seconds), np.array(self.bandwidths), self.necessary_seconds, dense)


@dataclass(frozen=True, slots=True)
class CheckpointPlanned:
    """A checkpoint before `iteration`, at which a later epoch may begin."""

    iteration: int


@dataclass(frozen=True, slots=True)
class IterationPlanned:
    """All workers were given plans of an iteration.

    Attributes:
        iteration: its number.
        digest: a digest of the plans, by which a replay checks its own.
        efforts: the amounts of work that the decision did within its time limit; see esd.dispatcher.core.decision_time.
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
    """A log open for writing. After `add` the operating system has the record, which may not be on disk yet."""

    def __init__(self, path: Path, job: dict[str, Any], *, resume: bool) -> None:
        """Begins a log, or continues one.

        Args:
            path: the file.
            job: the job's specification as JSON.
            resume: whether the job continues from a checkpoint, so that the records in the file must stay.

        Raises:
            FailedPrecondition: the file cannot be written, or `resume` is set and the file holds no whole record.
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
        """Closes the file. It ignores errors, because `add` has raised them."""
        with suppress(OSError):
            self._file.close()

    def _failure(self, error: OSError) -> FailedPrecondition:
        return FailedPrecondition(f"the decision log {self._path} cannot be written: {error.strerror}")


def read_decisions(path: Path) -> Iterator[Record]:
    """Yields the records of a log, the job first.

    Raises:
        InvalidArgument: the file cannot be read, or a line is no record of a decision log; the message names the line.
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
        raise InvalidArgument(f"decision log {path}, line {number}: the job must be the first record and no other")
    return record


def _drop_cut_line(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if not whole:
        raise FailedPrecondition(f"the decision log {path} does not hold the beginning of the job that it continues")
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
