"""The column of a table that has the samples' times, and the samples of a span of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from services.data.split import SECOND, Span
from services.data.tables.files import Piece

_TEXTS = (kinds.is_string, kinds.is_large_string)
EXPECTED = "a time, such as 2026-11-20, 2026-11-20T08:30:00, or a number of seconds"


def is_time(kind: pa.DataType) -> bool:
    """Tells whether a column of this type can have times."""
    if kinds.is_dictionary(kind):
        return is_time(kind.value_type)
    numbers = (kinds.is_integer, kinds.is_floating)
    return any(check(kind) for check in (kinds.is_timestamp, kinds.is_date, *numbers, *_TEXTS))


def times_of(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the times of n rows in microseconds, int64 [n], and which rows have none, bool [n]."""
    if kinds.is_dictionary(column.type):
        times, absent = times_of(column.dictionary)
        at = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        none = column.indices.is_null().to_numpy(zero_copy_only=False)
        return (times[at], absent[at] | none) if len(times) else (np.zeros(len(at), np.int64), none)
    if any(text(column.type) for text in _TEXTS):
        column = _parsed(column)
    if kinds.is_timestamp(column.type) or kinds.is_date(column.type):
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
        absent = column.is_null().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False), absent
    seconds = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    absent = ~np.isfinite(seconds)
    return np.where(absent, 0, seconds * SECOND).astype(np.int64), absent


def within(piece: Piece, column: str, span: Span) -> tuple[Piece, NDArray[np.bool_]]:
    """Returns the rows of a piece whose times are in a span or missing, and which of these it is that have none."""
    times, absent = times_of(piece.batch.column(column))
    rows = np.flatnonzero(span.holds(times) | absent)
    if len(rows) == len(times):
        return piece, absent
    return replace(piece, batch=piece.batch.take(pa.array(rows)), rows=rows), absent[rows]


def _parsed(texts: pa.Array) -> pa.Array:
    """Returns texts as numbers if all of them are, else as timestamps; those that are neither are absent."""
    for kind in (pa.float64(), pa.timestamp("us")):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return pa.array([_timestamp(text) for text in texts], pa.timestamp("us"))


def _timestamp(text: pa.Scalar) -> pa.Scalar | None:
    try:
        return text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return None
