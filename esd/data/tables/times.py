"""The column of a table that has the samples' times, and the samples of a span of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd.data.split import SECOND, Span
from esd.data.tables.files import Piece

_TEXTS = (kinds.is_string, kinds.is_large_string)
# What texts may be: numbers, or timestamps without a time zone or with one (`Z`, `+01:00`), to the nanosecond at most.
_WRITTEN = (pa.float64(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")))
_LOOK = r"^\s*([-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.]+)?(Z|[-+][0-9:]+)?)\s*$"


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
        return _of_texts(column)
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
    numbers = rows if piece.rows is None else piece.rows[rows]
    return replace(piece, batch=piece.batch.take(pa.array(rows)), rows=numbers), absent[rows]


def _of_texts(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Does what `times_of` does for texts: each is a number, a timestamp or neither, whatever the others are."""
    alike = _all_alike(texts)
    if alike is not None:
        return alike
    # What does not even look like a time is put aside at once, since what follows is slow where many texts are wrong.
    return _halved(pc.if_else(pc.match_substring_regex(texts, _LOOK), texts, pa.scalar(None, texts.type)))


def _all_alike(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    for kind in _WRITTEN:
        try:
            return times_of(texts.cast(kind))
        except pa.ArrowInvalid:  # not all of them are
            continue
    return None


def _halved(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    alike = _all_alike(texts)
    if alike is not None:
        return alike
    if len(texts) == 1:
        return np.zeros(1, np.int64), np.ones(1, np.bool_)
    middle = len(texts) // 2
    halves = [_halved(half) for half in (texts.slice(0, middle), texts.slice(middle))]
    return np.concatenate([times for times, _ in halves]), np.concatenate([absent for _, absent in halves])
