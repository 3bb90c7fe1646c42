"""Sample streams over tables of one's own: files, and frames that are in memory."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esd.data.dataset import Dataset
from esd.data.hashing import READER_VERSION
from esd.data.known_files import KnownFiles
from esd.data.paths import find_files
from esd.data.positions import behind, numbers_of
from esd.data.schema import Schema
from esd.data.split import Span, split
from esd.data.tables.cleaned import Cleaned, cut
from esd.data.tables.columns import check_types
from esd.data.tables.files import ENDINGS, Piece, pieces, recognised, sliced, whole
from esd.data.tables.outlines import outlines_of
from esd.data.tables.text_reader import Ragged
from esd.data.tables.times import times_of
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sources import SourcePosition

_COLUMNS = ("ids", "dense", "labels", "lengths", "weights", "groups", "sites")  # of a SampleBatch


class Table:
    """The common part of files, frames and logs: samples, with times if the schema names their column.

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


class TableDataset(Table):
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
        return self.open()

    def open(self, place: SourcePosition | None = None) -> Iterator[SampleBatch]:
        """See Positioned. A position is `FILE:ROW:SKIPPED`: files and rows from 0 on, and rows skipped before."""
        if place is None:
            return self._read(_Row(0, 0, 0))
        return behind(self._read(_Row(*numbers_of(place.text, 3))), place)

    def _read(self, place: _Row) -> Iterator[SampleBatch]:
        cleaned = Cleaned(self._schema, self._skip_bad, self._span, self._sites, labelled=self._labelled)
        cleaned.skipped = place.skipped
        for begin, some in self._joined(cleaned, place):
            done = 0
            for samples in cleaned.samples_of_files(some):
                yield from cut(replace(samples, source=SourcePosition(str(begin), done)), self._batch_size)
                done += len(samples)
                self.skipped = cleaned.skipped
        cleaned.check_some(str(self._files[0]))

    def _joined(self, cleaned: Cleaned, place: _Row) -> Iterator[tuple[_Row, list[tuple[str, Piece]]]]:
        """Yields the pieces of the files from a row on; small files with the same columns come together.

        With each group comes its first row, and before it the rows that were skipped.
        """
        some: list[tuple[str, Piece]] = []
        begin, rows = place, 0
        ragged: list[tuple[int, int]] = []  # file and number of rows that were skipped as they were read
        for at in range(place.file, len(self._files)):
            file = self._files[at]
            self._known.expect_unchanged(file)
            ragged = [each for each in ragged if each[0] >= begin.file]
            skip = _ragged_behind(cleaned, str(file), at, place.row if at == place.file else 0, ragged)
            for piece in pieces(file, [*self._schema.categories, *cleaned.besides], self._numbers, skip):
                if at == place.file and piece.first < place.row:
                    piece = _from_row(piece, place.row)  # noqa: PLW2901 - the rest of it
                if not len(piece.batch):
                    continue
                alike = not some or piece.batch.schema.equals(some[0][1].batch.schema)
                if some and (rows + len(piece.batch) > self._batch_size or not alike):
                    yield begin, some
                    some, rows = [], 0
                if not some:
                    row = piece.number(0) - 1
                    ahead = sum(each > (at, row) for each in ragged)
                    begin = _Row(at, row, cleaned.skipped - ahead)
                some.append((str(file), piece))
                rows += len(piece.batch)
                if rows >= self._batch_size:
                    yield begin, some
                    some, rows = [], 0
        if some:
            yield begin, some


class _Row(NamedTuple):
    """A row of the files, counted from 0 on, and how many rows were skipped before it."""

    file: int
    row: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.file}:{self.row}:{self.skipped}"


def _ragged_behind(cleaned: Cleaned, source: str, file: int, row: int, seen: list[tuple[int, int]]) -> Ragged:
    """Returns the listener for ragged rows of a file; those before `row` are skipped already."""

    def ragged(number: int, wrong: str) -> None:
        if number > row:
            cleaned.skip(f"{source}: row {number}: {wrong}")
            seen.append((file, number))

    return ragged


def _from_row(piece: Piece, row: int) -> Piece:
    """Returns the part of a piece from a row of its file on."""
    rows = np.arange(len(piece.batch)) if piece.rows is None else piece.rows
    kept = int(np.searchsorted(rows, row - piece.first))
    return Piece(piece.batch.slice(kept), piece.first, piece.place, rows[kept:])


class Frame(Protocol):
    """The interface of frames of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the frame as a stream of Arrow batches."""


class FrameDataset(Table):
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
        cleaned = Cleaned(self._schema, self._skip_bad, self._span, self._sites, labelled=self._labelled)
        first = 0
        for block in self._table.select([*self._schema.categories, *self._numbers, *cleaned.besides]).to_batches():
            for batch in sliced(_whole_frame(block, self._numbers)):
                yield from cut(cleaned.samples(Piece(batch, first), "the frame"), self._batch_size)
                self.skipped = cleaned.skipped
                first += len(batch)
        cleaned.check_some("the frame")


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
