"""Sample streams over tables of one's own: files, and frames that are in memory."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esd.data.dataset import Dataset
from esd.data.hashing import READER_VERSION
from esd.data.known_files import KnownFiles
from esd.data.paths import find_files
from esd.data.schema import Schema
from esd.data.split import TIME, Span, split
from esd.data.tables.columns import Mistakes, check_types, samples_of, shown, without, wrong_rows
from esd.data.tables.files import ENDINGS, Piece, pieces, recognised, sliced, whole
from esd.data.tables.outlines import outlines_of
from esd.data.tables.text_reader import Ragged
from esd.data.tables.times import times_of, within
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)

_LARGE = 1e6  # a value of a dense feature that is worth a warning
_ENOUGH = 100  # samples after which one label in all of them is worth a warning
_COLUMNS = ("ids", "dense", "labels", "lengths", "weights", "groups", "sites")  # of a SampleBatch


class _Table:
    """The common part of files and frames: samples, with times if the schema names their column.

    Args:
        schema: describes the columns.
        batch_size: samples of a batch, at most.
        skip_bad: rows that are no samples and are left out before one is an error.
        labelled: whether they have labels; without, labels are NaN, and there are no weights, groups or times.
    """

    endless = False

    def __init__(self, schema: Schema, batch_size: int, skip_bad: int, *, labelled: bool) -> None:
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is {batch_size}, it must be at least 1")
        if skip_bad < 0:
            raise InvalidArgument(f"skip_bad is {skip_bad}, it must be at least 0")
        self._schema = schema if labelled else schema.to_score
        self._skip_bad = skip_bad
        self._labelled = labelled
        self._numbers = [name for name in self._schema.numbers if labelled or name not in schema.labels]
        self._batch_size = batch_size
        self._span: Span | None = None
        self._sites: tuple[str, ...] = ()
        self.features = schema.features
        self.labels = schema.labels
        self.dense_features = schema.dense_features
        self.skipped = 0

    @property
    def schema(self) -> Schema:
        """The description of the columns that are read."""
        return self._schema

    @property
    def timed(self) -> bool:
        """Whether samples have times."""
        return self._schema.time is not None

    def between(self, first: int | None, end: int | None) -> Self:
        """See esd.data.split.Timed."""
        part = copy(self)
        part.__dict__.pop("samples", None)
        part._span = Span(first, end)  # noqa: SLF001 - of the same class
        return part

    def at_sites(self, sites: Sequence[str]) -> Self:
        """Returns the same samples with their sites, all of them in `sites`, the sites of the workers.

        Raises:
            InvalidArgument: the schema names no column of sites.
        """
        if self._schema.site is None:
            raise InvalidArgument(f"workers have the sites {', '.join(sites)}, and the schema names no column `site`")
        part = copy(self)
        part.__dict__.pop("samples", None)
        part._sites = tuple(dict.fromkeys(sites))  # noqa: SLF001 - of the same class
        return part

    def split(self, last: str | float) -> tuple[Dataset, Dataset]:
        """Returns the samples to train and the last ones, to judge by: `split(last="1d")`. See esd.data.split."""
        parts: tuple[Dataset, Dataset] = split(self, last)  # type: ignore[arg-type] # what is missing, both kinds have
        return parts


class TableDataset(_Table):
    """A `Dataset` over files of one schema, in the order of their names.

    Every file is looked at before the first sample: one that lacks a column, or has another type in it than the files
    before, is refused at once and not after a day of training.

    Raises:
        InvalidArgument: there is no such file; a file does not fit the schema, is damaged or empty.
    """

    name = "files"

    def __init__(
        self,
        pattern: str,
        schema: Schema,
        batch_size: int,
        skip_bad: int = 0,
        data_dir: Path | None = None,
        *,
        labelled: bool = True,
    ) -> None:
        super().__init__(schema, batch_size, skip_bad, labelled=labelled)
        found = find_files(pattern, data_dir or Path(), ENDINGS, recognised)
        rows = outlines_of(found, self._schema, labelled=labelled)
        self._files = tuple(rows)
        self._rows = None if None in rows.values() else sum(filter(None, rows.values()))
        self._known = KnownFiles(self._files)

    @cached_property
    def samples(self) -> int | None:
        """How many there are, where the files tell so or their times were read, and none may be skipped."""
        if self._span is not None:
            return None if self._skip_bad else _count_within(self.times(), self._span)
        return None if self._skip_bad else self._rows

    def times(self) -> Iterator[NDArray[np.int64]]:
        """See esd.data.split.Timed; rows without a time are left out."""
        column = str(self._schema.time)
        for file in self._files:
            self._known.expect_unchanged(file)
            for piece in pieces(file, [column], []):
                yield _present_times(piece.batch.column(column), self._schema)

    @property
    def fingerprint(self) -> str:
        """Names the schema and the content of all files, which are read for it."""
        made = hashlib.blake2b(self._schema.to_json().encode(), digest_size=8).hexdigest()
        name = f"{self._known.content}, schema {made}, reader {READER_VERSION}"
        return name if self._span is None else f"{name}; {self._span}"

    def __iter__(self) -> Iterator[SampleBatch]:
        cleaned = _Cleaned(self._schema, self._skip_bad, self._span, self._sites, labelled=self._labelled)
        for some in self._joined(cleaned):
            for samples in cleaned.samples_of_files(some):
                yield from _cut(samples, self._batch_size)
                self.skipped = cleaned.skipped
        cleaned.check_some(str(self._files[0]))

    def _joined(self, cleaned: _Cleaned) -> Iterator[list[tuple[str, Piece]]]:
        """Yields the pieces of all files with their files; small files with the same columns come together."""
        some: list[tuple[str, Piece]] = []
        rows = 0
        for file in self._files:
            self._known.expect_unchanged(file)
            ragged = cleaned.ragged(str(file))
            for piece in pieces(file, [*self._schema.categories, *cleaned.besides], self._numbers, ragged):
                if not len(piece.batch):
                    continue
                alike = not some or piece.batch.schema.equals(some[0][1].batch.schema)
                if some and (rows + len(piece.batch) > self._batch_size or not alike):
                    yield some
                    some, rows = [], 0
                some.append((str(file), piece))
                rows += len(piece.batch)
                if rows >= self._batch_size:
                    yield some
                    some, rows = [], 0
        if some:
            yield some


class Frame(Protocol):
    """The interface of frames of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the frame as a stream of Arrow batches."""


class FrameDataset(_Table):
    """A `Dataset` over a frame, in the order of its rows.

    Raises:
        InvalidArgument: the frame does not fit the schema.
    """

    name = "frame"

    def __init__(
        self, frame: Frame, schema: Schema, batch_size: int, skip_bad: int = 0, *, labelled: bool = True
    ) -> None:
        super().__init__(schema, batch_size, skip_bad, labelled=labelled)
        try:
            besides = (*self._schema.sites, *self._schema.times)
            self._table = _arrow(frame, dict.fromkeys([*self._schema.categories, *self._numbers, *besides]))
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end]
            raise InvalidArgument(f"the frame has a text that UTF-8 cannot write, with {found!r} in it") from None
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidArgument(f"a {type(frame).__name__} cannot be read as a frame: {error}") from None
        check_types(self._schema, self._table.schema, "the frame", labelled=labelled)

    @cached_property
    def samples(self) -> int | None:
        """How many there are, if none may be skipped."""
        if self._skip_bad:
            return None
        return len(self._table) if self._span is None else _count_within(self.times(), self._span)

    def times(self) -> Iterator[NDArray[np.int64]]:
        """See esd.data.split.Timed; rows without a time are left out."""
        for column in self._table[self._schema.time].chunks:
            yield _present_times(column, self._schema)

    @property
    def fingerprint(self) -> str:
        """Names the samples by a hash of all of them."""
        contents = {name: hashlib.blake2b(digest_size=8) for name in _COLUMNS}
        samples = 0
        for batch in self:
            samples += len(batch)
            for name, content in contents.items():
                column: NDArray[np.generic] | None = getattr(batch, name)
                content.update(b"" if column is None else column.tobytes())
        return f"frame of {samples} samples {' '.join(content.hexdigest() for content in contents.values())}"

    def __iter__(self) -> Iterator[SampleBatch]:
        cleaned = _Cleaned(self._schema, self._skip_bad, self._span, self._sites, labelled=self._labelled)
        first = 0
        for block in self._table.select([*self._schema.categories, *self._numbers, *cleaned.besides]).to_batches():
            for batch in sliced(_whole_frame(block, self._numbers)):
                yield from _cut(cleaned.samples(Piece(batch, first), "the frame"), self._batch_size)
                self.skipped = cleaned.skipped
                first += len(batch)
        cleaned.check_some("the frame")


class _Cleaned:
    """Makes samples of pieces, and leaves out as many rows that are none as may be skipped.

    Args:
        schema: of the samples.
        skip_bad: how many rows that is.
        span: samples of other times are left out, too; None: there are none.
        sites: of the workers, if samples stay at theirs; else empty.
        labelled: whether pieces have labels.

    Attributes:
        skipped: rows left out so far that were no samples.
        besides: columns that pieces have besides those that the schema makes samples of.
    """

    def __init__(
        self, schema: Schema, skip_bad: int, span: Span | None, sites: tuple[str, ...], *, labelled: bool
    ) -> None:
        self._schema = schema
        self._columns = schema.sample_columns
        self._labelled = labelled
        self._skip_bad = skip_bad
        self._span = span
        self._sites = sites
        self.skipped = 0
        self._made = 0
        self._large: set[str] = set()  # dense features that were warned of
        self._first_labels: NDArray[np.float32] | None = None
        self._teaches = np.zeros(len(schema.labels), bool)  # by label: whether two samples differ in it
        self._weighed = schema.weight is None  # whether a sample had a weight
        besides = [*(schema.sites if sites else ()), *(() if span is None else schema.times)]
        self.besides = [each for each in dict.fromkeys(besides) if each not in schema.columns]

    def samples(self, piece: Piece, source: str) -> SampleBatch:
        """Returns the samples of a piece.

        Raises:
            InvalidArgument: more rows than may be skipped are no samples; names file, row and column.
        """
        untimed: list[Mistakes] = []
        if self._span is not None and self._schema.time is not None:
            piece, absent = within(piece, self._schema.time, self._span, self._schema.time_unit)
            untimed = [Mistakes(self._schema.time, absent, TIME)] if absent.any() else []
        try:
            samples, mistakes = samples_of(piece.batch, self._schema, labelled=self._labelled, sites=self._sites)
        except pa.ArrowException as error:  # such as a time zone that is not known here
            raise InvalidArgument(f"{source}: {error}") from error
        samples = samples.named(self._columns)
        mistakes += untimed
        if mistakes:
            for row, mistake in wrong_rows(mistakes):
                self._skip(_described(piece, source, row, mistake))
            samples = without(samples, mistakes)
        return self._noted(samples)

    def _noted(self, samples: SampleBatch) -> SampleBatch:
        self._made += len(samples)
        self._warn_of_large(samples)
        if self._labelled and len(samples):
            self._note_labels(samples)
        return samples

    def samples_of_files(self, some: Sequence[tuple[str, Piece]]) -> Iterator[SampleBatch]:
        """Yields the samples of pieces of files. Pieces of right rows alone are made samples of together.

        Raises:
            InvalidArgument: more rows than may be skipped are no samples; names file, row and column.
        """
        if len(some) > 1 and self._span is None:
            batches = [piece.batch for _, piece in some]
            (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
            samples, mistakes = samples_of(joined, self._schema, labelled=self._labelled, sites=self._sites)
            if not mistakes:
                yield self._noted(samples.named(self._columns))
                return
        for file, piece in some:
            yield self.samples(piece, file)

    def check_some(self, source: str) -> None:
        """Warns at the end of samples from which nothing is learned.

        Raises:
            InvalidArgument: all rows were skipped.
        """
        if self.skipped and not self._made and self._span is None:
            raise InvalidArgument(f"{source}: no row is a sample, all {self.skipped:,} were skipped (--skip-bad)")
        if self._first_labels is None or self._made < _ENOUGH:
            return
        for name, value, teaches in zip(self._schema.labels, self._first_labels, self._teaches, strict=True):
            if not teaches:
                _log.warning("label %r is %g in all %d samples: there is nothing to learn", name, value, self._made)
        if not self._weighed:
            _log.warning("weight %r is 0 in all %d samples: nothing is learned", self._schema.weight, self._made)

    def _note_labels(self, samples: SampleBatch) -> None:
        labels = samples.labels.reshape(len(samples), -1)
        if self._first_labels is None:
            self._first_labels = labels[0].copy()
        self._teaches |= (labels != self._first_labels).any(axis=0)
        self._weighed = self._weighed or samples.weights is None or bool(samples.weights.any())

    def _warn_of_large(self, samples: SampleBatch) -> None:
        if not samples.dense.size:
            return
        most = np.abs(samples.dense).max(axis=0)
        for at in np.flatnonzero(most > _LARGE):
            name = self._columns.dense[at]
            if name not in self._large:
                self._large.add(name)
                _log.warning(
                    "dense feature %r has values up to %.3g: a model hardly learns from numbers far from 1; scale "
                    "them, or name the column in `log` of the schema", name, most[at],
                )  # fmt: skip

    def ragged(self, source: str) -> Ragged:
        """Returns the listener for rows of a file that have more or fewer values than its header."""
        return lambda number, wrong: self._skip(f"{source}: row {number}: {wrong}")

    def _skip(self, message: str) -> None:
        if self.skipped == self._skip_bad:
            allowed = f"--skip-bad {self._skip_bad} allows no more" if self._skip_bad else "--skip-bad N skips it"
            allowed += "" if self._skip_bad else "; esd.read: skip_bad=N"
            raise InvalidArgument(f"{message} ({allowed})")
        if self.skipped == 0:
            _log.warning("skipping a row that is no sample, further ones are only counted: %s", message)
        self.skipped += 1


def _described(piece: Piece, source: str, row: int, mistake: Mistakes) -> str:
    found = shown(piece.batch.column(mistake.column)[row])
    place = f"{source}: row {piece.number(row)}{piece.place}: column {mistake.column!r}"
    return f"{place}: expected {mistake.expected}, found {found}"


def _cut(samples: SampleBatch, size: int) -> Iterable[SampleBatch]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def _present_times(column: pa.Array, schema: Schema) -> NDArray[np.int64]:
    times, absent = times_of(column, schema.time_unit)
    return times[~absent]


def _count_within(times: Iterable[NDArray[np.int64]], span: Span) -> int:
    return sum(int(span.holds(each).sum()) for each in times)


def _arrow(frame: Frame, columns: Collection[str]) -> pa.Table:
    """Returns at least the named columns of a frame, if it has them.

    Of pandas' frames the other columns are not converted. Neither is the description made that pyarrow adds for the
    way back to pandas, which would take longer than the conversion of one row.
    """
    if isinstance(frame, pa.Table):
        return frame  # pyarrow before 25 crashes on some types where it converts its own table
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(frame, pandas.DataFrame):
        return pa.table(frame)
    names = frame.columns
    if names.nlevels > 1 or not names.is_unique or not all(column in names for column in columns):
        return pa.table(frame)  # which makes columns of an index, and texts of other names
    try:
        return pa.table({column: frame[column] for column in columns})
    except (pa.ArrowException, TypeError, ValueError):
        return pa.table(frame)  # whose error names the column


def _whole_frame(block: pa.RecordBatch, numbers: list[str]) -> pa.RecordBatch:
    try:
        return whole(block, numbers)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(f"the frame is damaged: {error}") from None
