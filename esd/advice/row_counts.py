"""The number of rows that the tables of a run will have: its samples are read once, in fixed memory."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.advice.growth import Growth
from esd.advice.steps import StepListener, ignore
from esd.dispatcher.core.admission import Admission
from esd.native.text import IdSample
from esd.run.options import RunOptions
from esd.run.stream import READ_SAMPLES, first_samples, global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec

ALL = "all"
ENDLESS_SAMPLES = 1_000_000  # of a stream without an end that are counted without --count
_LEAST_LOOK = 16  # iterations between two looks at the sampled rows, which take as long as some iterations' samples
_GROWTH_STEP = 2 ** (1 / 8)  # between the numbers of samples whose rows are noted
_REPORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table.

    Attributes:
        name: of the table.
        ids: distinct ids of the counted samples.
        rows: the most rows that the table has at a time in these samples: of admitted ids that are not forgotten.
        error: relative standard error of both; 0: they are exact.
        expected: the most rows that it has in all samples of the run.
        changed: the most rows that a checkpoint may have to restore: trained since the oldest one that is kept.
        new: how many of them had no row at that checkpoint.
    """

    name: str
    ids: int
    rows: int
    error: float
    expected: int
    changed: int
    new: int


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The rows of a run.

    Attributes:
        tables: by number.
        samples: how many were counted.
        total: samples of the run; None: unknown.
        whole: whether all samples of the run were counted.
        initial_error: share of new ids that are admitted at once, at the end, because other ids count for them.
        growth: of all tables together.
    """

    tables: tuple[TableRows, ...]
    samples: int
    total: int | None
    whole: bool
    initial_error: float
    growth: Growth

    @property
    def rows(self) -> int:
        """The most rows at a time that all samples of the run bring, of all tables."""
        return sum(table.expected for table in self.tables)

    @property
    def error(self) -> float:
        """Relative standard error of the rows in the counted samples."""
        errors = math.hypot(*(table.error * table.rows for table in self.tables))
        return errors / max(1, sum(table.rows for table in self.tables))

    def as_json(self) -> dict[str, Any]:
        """Returns everything as JSON values."""
        return {
            "tables": [asdict(table) for table in self.tables],
            "rows": self.rows,
            "error": self.error,
            "samples": self.samples,
            "total": self.total,
            "whole": self.whole,
            "initial_error": self.initial_error,
        }


def check_count(count: str | None) -> None:
    """Raises InvalidArgument unless `count` is None, `all` or a number of samples."""
    if count not in (None, ALL) and not (count.isascii() and count.isdecimal() and int(count)):
        raise InvalidArgument(f"--count is {count!r}, it must be all or a number of samples")


def count_rows(
    chosen: RunOptions,
    job: JobSpec,
    kept_iterations: float = 0.0,
    count: str | None = None,
    listener: StepListener = ignore,
) -> RowCounts:
    """Reads the samples of a run and counts the rows that its tables will have.

    Which ids are admitted, which rows live and which negatives are drawn is decided as the dispatcher decides it, with
    the batch of the job.

    Args:
        chosen: the run.
        job: the job of the run.
        kept_iterations: iterations between the oldest checkpoint that is kept and the latest plan; 0: no checkpoints.
        count: samples to read, or `all`; None: all, or 1,000,000 if the stream has no end. Of rows that later samples
            bring, the growth so far says how many they are.
        listener: gets a line every few seconds.

    Raises:
        InvalidArgument: all samples of a stream without an end are to be counted; a record is malformed.
    """
    check_count(count)
    by_iteration = any(job.row_ttls) or bool(job.admit_afters) or bool(job.rows_kept) or job.negatives is not None
    if not by_iteration:
        chosen = replace(chosen, epochs=1, shuffle=0)  # another epoch brings no new ids
    dataset = chosen.open(READ_SAMPLES)
    trained = None if chosen.iterations is None else chosen.iterations * job.batch_size
    bound = min((each for each in (dataset.samples, trained) if each is not None), default=None)
    most = bound
    if count is not None and count != ALL:
        most = int(count) if bound is None else min(int(count), bound)
    elif bound is None and dataset.endless:
        if count == ALL:
            raise InvalidArgument(f"{chosen.data} is endless: give --count SAMPLES, or --iterations")
        most = ENDLESS_SAMPLES
    counter = _Counter(job, kept_iterations)
    shown = time.monotonic()
    for batch in global_batches(first_samples(dataset, most), job.batch_size):
        counter.add(batch)
        if time.monotonic() - shown >= _REPORT_SECONDS:
            shown = time.monotonic()
            of_all = "" if most is None else f" of {most:,}"
            listener(f"count of rows: {counter.samples:,}{of_all} samples, {counter.rows:,.0f} rows")
    whole = most is None or most == bound or counter.samples < most
    known = whole or dataset.samples is not None or dataset.endless
    return counter.counts(whole=whole, total=counter.samples if whole else bound if known else None)


class _Counter:
    """Follows the rows of a job, iteration by iteration."""

    def __init__(self, job: JobSpec, kept_iterations: float) -> None:
        self.samples = 0
        self._job = job
        self._ids = self._rows = IdSample(len(job.tables))
        self._admission = Admission(job) if job.admit_afters else None
        if self._admission is not None:
            self._rows = IdSample(len(job.tables))
        self._error = 0.0
        self._iteration = 0
        self._kept = max(0, math.ceil(kept_iterations))
        ttls = np.array(job.row_ttls or [0] * len(job.tables), np.int64)
        self._lives = np.where(ttls == 0, np.iinfo(np.int64).max // 2, ttls)
        self._look = max(_LEAST_LOOK, int(min([*self._lives, self._kept or 2**62])) // 8)
        self._looks: deque[tuple[int, NDArray[np.float64], NDArray[np.float64]]] = deque()
        self._most = self._changed = self._new = np.zeros(len(job.tables))
        self._growth: list[tuple[int, NDArray[np.float64]]] = []
        self._next_growth = 0.0

    @property
    def rows(self) -> float:
        """The most rows at a time, of all tables together, at the last look."""
        return float(self._most.sum())

    def add(self, batch: SampleBatch) -> None:
        """Follows one iteration."""
        self.samples += len(batch)
        if self._admission is not None:
            self._ids.add(batch.ids, self._iteration)
            admitted = self._admission.admit(batch)
            batch, self._error = admitted.samples, admitted.error
        self._rows.add(batch.ids, self._iteration)
        if self._job.negatives is not None:
            drawn = self._job.negatives.drawn(self._job.seed, self._iteration, self._job.negatives.chunks(len(batch)))
            self._rows.add(drawn.reshape(-1), self._iteration)
        self._iteration += 1
        if self._iteration % self._look == 0 or self.samples >= self._next_growth:
            self._look_at_rows()

    def _look_at_rows(self) -> None:
        born = self._since(np.zeros(len(self._lives), np.int64))
        living = self._since(self._iteration - self._lives) if any(self._job.row_ttls) else born
        kept = self._job.rows_kept
        if kept and living.sum() > kept:
            living = living * (kept / living.sum())
        self._most = np.maximum(self._most, living)
        if self.samples >= self._next_growth:
            self._growth.append((self.samples, self._most))
            self._next_growth = _GROWTH_STEP * self.samples
        if self._kept:
            self._look_at_changes(born, living)

    def _look_at_changes(self, born: NDArray[np.float64], living: NDArray[np.float64]) -> None:
        """Counts the rows that have changed since the oldest checkpoint that is kept."""
        while self._looks and self._looks[0][0] < self._iteration - self._kept:
            self._looks.popleft()
        self._looks.append((self._iteration, born, living))
        at, born_then, living_then = self._looks[0] if self._iteration > self._kept else (0, 0 * born, 0 * born)
        new = born - born_then
        gone = np.maximum(0, living_then + new - living)
        changed = np.maximum(new, self._since(np.full(len(born), at, np.int64)) + gone)
        if changed.sum() > self._changed.sum():
            self._changed, self._new = changed, new

    def _since(self, iterations: NDArray[np.int64]) -> NDArray[np.float64]:
        """Estimates the number of rows of each table that were trained from an iteration on, float64 [T]."""
        counts = self._rows.counts(np.maximum(iterations, 0).astype(np.uint64))
        estimated: NDArray[np.float64] = counts / self._rows.shares
        return estimated

    def counts(self, *, whole: bool, total: int | None) -> RowCounts:
        """Returns all counts."""
        self._look_at_rows()
        if not self._growth or self._growth[-1][0] < self.samples:
            self._growth.append((self.samples, self._most))
        samples, rows = zip(*self._growth, strict=True)
        growth = Growth(np.array(samples, np.int64), np.array(rows))
        expected = self._most if whole or total is None else growth.after(total)
        if self._job.rows_kept and expected.sum() > self._job.rows_kept:
            expected = expected * (self._job.rows_kept / expected.sum())
        nothing = np.zeros(len(self._lives), np.uint64)
        ids = self._ids.counts(nothing) / self._ids.shares
        sampled = self._most * self._rows.shares
        errors = np.sqrt((1 - self._rows.shares) / np.maximum(sampled, 1))
        figures = zip(self._job.tables, ids, self._most, errors, expected, self._changed, self._new, strict=True)
        tables = [
            TableRows(table.name, round(i), round(r), float(error), round(e), round(c), round(n))
            for table, i, r, error, e, c, n in figures
        ]
        return RowCounts(tuple(tables), self.samples, total, whole, self._error, growth)
