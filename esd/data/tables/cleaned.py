"""Rows of tables and logs become samples, and those that are none are left out and counted, as many as may be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esd.data.schema import Schema
from esd.data.split import TIME, Span
from esd.data.tables.columns import Mistakes, samples_of, shown, without, wrong_rows
from esd.data.tables.files import Piece
from esd.data.tables.times import within
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)

_LARGE = 1e6  # a value of a dense feature that is worth a warning
_ENOUGH = 100  # samples after which one label in all of them is worth a warning


class Cleaned:
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
                self.skip(_described(piece, source, row, mistake))
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

    def skip(self, message: str) -> None:
        """Leaves a row out that is no sample.

        Raises:
            InvalidArgument: no more rows may be skipped; it has the message.
        """
        if self.skipped == self._skip_bad:
            allowed = f"--skip-bad {self._skip_bad} allows no more" if self._skip_bad else "--skip-bad N skips it"
            allowed += "" if self._skip_bad else "; esd.read: skip_bad=N"
            raise InvalidArgument(f"{message} ({allowed})")
        if self.skipped == 0:
            _log.warning("skipping a row that is no sample, further ones are only counted: %s", message)
        self.skipped += 1


def _described(piece: Piece, source: str, row: int, mistake: Mistakes) -> str:
    found = shown(piece.batch.column(mistake.column)[row])
    place = f"{source}: {piece.named(row)}: column {mistake.column!r}"
    return f"{place}: expected {mistake.expected}, found {found}"


def cut(samples: SampleBatch, size: int) -> Iterator[SampleBatch]:
    """Yields samples in batches of at most this size."""
    for start in range(0, len(samples), size):
        yield samples[start : start + size]
