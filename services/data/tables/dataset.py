"""Sample streams over tables of one's own: files, and frames that are in memory."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from services.data.hashing import READER_VERSION, file_fingerprint
from services.data.schema import Schema
from services.data.tables.columns import Mistakes, check_types, samples_of, shown, without, wrong_rows
from services.data.tables.files import Piece, column_types, find_files, is_text, pieces, row_count, sliced
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)

_COLUMNS = ("ids", "dense", "labels", "lengths", "weights", "groups")  # of a SampleBatch


class TableDataset:
    """A `Dataset` over files of one schema, in the order of their names.

    Every file is looked at before the first sample: one that lacks a column, or has another type in it than the files
    before, is refused at once and not after a day of training.

    Raises:
        NotFound: there is no such file.
        InvalidArgument: a file does not fit the schema, is damaged or empty.
    """

    name = "files"
    endless = False

    def __init__(
        self, pattern: str, schema: Schema, batch_size: int, skip_bad: int = 0, data_dir: Path | None = None
    ) -> None:
        self._files = find_files(pattern, data_dir or Path())
        self._schema = schema
        self._batch_size = batch_size
        self._skip_bad = skip_bad
        self.features = schema.features
        self.labels = schema.labels
        self.dense_features = schema.dense
        self.skipped = 0
        first = column_types(self._files[0])
        for file in self._files:
            found = column_types(file)
            check_types(schema, found, f"data file {file}", written=is_text(file))
            if not is_text(file):
                _check_same(schema, first, found, f"{file} and {self._files[0]}")

    @cached_property
    def samples(self) -> int | None:
        """How many there are, where the files tell so and none may be skipped."""
        counts = [] if self._skip_bad else [row_count(file) for file in self._files]
        return sum(filter(None, counts)) if counts and None not in counts else None

    @property
    def fingerprint(self) -> str:
        """Names the schema and the content of all files, which are read for it."""
        content = hashlib.blake2b(digest_size=16)
        for file in self._files:
            content.update(f"{file_fingerprint(file)}\n".encode())
        made = hashlib.blake2b(self._schema.to_json().encode(), digest_size=8).hexdigest()
        return f"{len(self._files)} files {content.hexdigest()}, schema {made}, reader {READER_VERSION}"

    def __iter__(self) -> Iterator[SampleBatch]:
        cleaned = _Cleaned(self._schema, self._skip_bad)
        for file in self._files:
            rows = 0
            for piece in pieces(file, self._schema.categories, self._schema.numbers):
                rows += len(piece.batch)
                yield from _cut(cleaned.samples(piece, str(file)), self._batch_size)
                self.skipped = cleaned.skipped
            if rows == 0:
                raise InvalidArgument(f"data file {file} has no rows")


class Frame(Protocol):
    """What pandas, polars, pyarrow and others give of their frames."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Exports the frame as a stream of Arrow batches."""


class FrameDataset:
    """A `Dataset` over a frame, in the order of its rows.

    Raises:
        InvalidArgument: the frame does not fit the schema.
    """

    name = "frame"
    endless = False

    def __init__(self, frame: Frame, schema: Schema, batch_size: int) -> None:
        self._table = pa.table(frame)
        self._schema = schema
        self._batch_size = batch_size
        self.features = schema.features
        self.labels = schema.labels
        self.dense_features = schema.dense
        self.skipped = 0
        self.samples = len(self._table)
        check_types(schema, self._table.schema, "the frame")

    @property
    def fingerprint(self) -> str:
        """Names the samples by a hash of all of them."""
        contents = {name: hashlib.blake2b(digest_size=8) for name in _COLUMNS}
        for batch in self:
            for name, content in contents.items():
                column: NDArray[np.generic] | None = getattr(batch, name)
                content.update(b"" if column is None else column.tobytes())
        return f"frame of {self.samples} samples {' '.join(content.hexdigest() for content in contents.values())}"

    def __iter__(self) -> Iterator[SampleBatch]:
        cleaned = _Cleaned(self._schema, skip_bad=0)
        first = 0
        for block in self._table.select(self._schema.columns).to_batches():
            for batch in sliced(block):
                yield from _cut(cleaned.samples(Piece(batch, first), "the frame"), self._batch_size)
                first += len(batch)


class _Cleaned:
    """Makes samples of pieces, and leaves out as many rows that are none as may be skipped.

    Attributes:
        skipped: rows left out so far.
    """

    def __init__(self, schema: Schema, skip_bad: int) -> None:
        self._schema = schema
        self._skip_bad = skip_bad
        self.skipped = 0

    def samples(self, piece: Piece, source: str) -> SampleBatch:
        """Returns the samples of a piece.

        Raises:
            InvalidArgument: more rows than may be skipped are no samples; names file, row and column.
        """
        samples, mistakes = samples_of(piece.batch, self._schema)
        if not mistakes:
            return samples
        for row, mistake in wrong_rows(mistakes):
            message = _described(piece, source, row, mistake)
            if self.skipped == self._skip_bad:
                allowed = f"--skip-bad {self._skip_bad} allows no more" if self._skip_bad else "--skip-bad N skips it"
                raise InvalidArgument(f"{message} ({allowed})")
            if self.skipped == 0:
                _log.warning("skipping a row that is no sample, further ones are only counted: %s", message)
            self.skipped += 1
        return without(samples, mistakes)


def _described(piece: Piece, source: str, row: int, mistake: Mistakes) -> str:
    found = shown(piece.batch.column(mistake.column)[row])
    place = f"{source}: row {piece.first + row + 1}{piece.place}: column {mistake.column!r}"
    return f"{place}: expected {mistake.expected}, found {found}"


def _cut(samples: SampleBatch, size: int) -> Iterable[SampleBatch]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def _check_same(schema: Schema, first: pa.Schema, found: pa.Schema, files: str) -> None:
    """Refuses a column whose type changes from file to file: its values would have other ids from there on."""
    for name in schema.categories:
        before, now = first.field(name).type, found.field(name).type
        if before != now:
            raise InvalidArgument(f"column {name!r} is of another type in {files}: {now} and {before}")
