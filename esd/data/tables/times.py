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
from esd.services.domain.errors import InvalidArgument

_MICROSECONDS = {"s": SECOND, "ms": SECOND / 10**3, "us": 1.0, "ns": 10**-3}
_NANOSECONDS = 1000  # of a microsecond
_LIMITS = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": 2.0**63}  # the largest number of a unit: the year 5138 and so on
_FIRST_DAY, _LAST_DAY = 1900_01_01, 2100_12_31
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


def times_of(column: pa.Array, unit: str | None = None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the times of n rows in microseconds, int64 [n], and which rows have none, bool [n].

    Args:
        column: timestamps, dates, numbers since 1970, or texts of these.
        unit: of numbers (`Schema.time_unit`).

    Raises:
        InvalidArgument: there is no unit, and numbers are no seconds: after the year 5138, or all look like dates.
    """
    if kinds.is_dictionary(column.type):
        times, absent = times_of(column.dictionary, unit)
        at = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        none = column.indices.is_null().to_numpy(zero_copy_only=False)
        return (times[at], absent[at] | none) if len(times) else (np.zeros(len(at), np.int64), none)
    if any(text(column.type) for text in _TEXTS):
        return _of_texts(column, unit)
    if kinds.is_timestamp(column.type) or kinds.is_date(column.type):
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
        absent = column.is_null().to_numpy(zero_copy_only=False)
        return column.fill_null(0).to_numpy(zero_copy_only=False), absent
    return _of_numbers(column, unit)


def unit_of(column: pa.Array) -> str | None:
    """Returns the unit that numbers since 1970 have by their size, None if they are no times."""
    numbers = _present(column)
    if not len(numbers) or _looks_like_dates(numbers):
        return None
    most = float(np.abs(numbers).max())
    return next((unit for unit, limit in _LIMITS.items() if most <= limit), None)


def _of_numbers(column: pa.Array, unit: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if unit is None:
        _check_seconds(_present(column))
    factor = _MICROSECONDS[unit or "s"]
    if kinds.is_integer(column.type):  # which floats would round
        absent = column.is_null().to_numpy(zero_copy_only=False)
        whole = column.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
        return (whole // _NANOSECONDS if unit == "ns" else whole * int(factor)), absent
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    absent = ~np.isfinite(numbers)
    return np.floor(np.where(absent, 0, numbers) * factor).astype(np.int64), absent


def _present(column: pa.Array) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers[np.isfinite(numbers)]


def _check_seconds(numbers: NDArray[np.float64]) -> None:
    if not len(numbers):
        return
    most = float(numbers[np.argmax(np.abs(numbers))])
    if _looks_like_dates(numbers):
        raise InvalidArgument(
            f"times such as {most:.0f} look like dates, not like numbers since 1970: write them as texts, 2026-11-20 "
            "or 2026-11-20T08:30:00, or give their time-unit in the schema"
        )
    if abs(most) > _LIMITS["s"]:
        raise InvalidArgument(
            f"times such as {most:.0f} are no seconds since 1970: give their unit in the schema, time-unit = 'ms', "
            "'us' or 'ns'"
        )


def _looks_like_dates(numbers: NDArray[np.float64]) -> bool:
    """Tells whether two numbers or more all are written as 20261120 is, without a time or with one of 2 to 6 digits."""
    if len(numbers) < 2 or not (np.floor(numbers) == numbers).all():
        return False
    for digits in (0, 2, 4, 6):
        days = numbers // 10**digits
        months = days // 100 % 100
        if (
            ((days >= _FIRST_DAY) & (days <= _LAST_DAY)).all()
            and ((months >= 1) & (months <= 12)).all()
            and ((days % 100 >= 1) & (days % 100 <= 31)).all()
        ):
            return True
    return False


def within(piece: Piece, column: str, span: Span, unit: str | None = None) -> tuple[Piece, NDArray[np.bool_]]:
    """Returns the rows of a piece whose times are in a span or missing, and which of them have none, bool [n]."""
    times, absent = times_of(piece.batch.column(column), unit)
    rows = np.flatnonzero(span.holds(times) | absent)
    if len(rows) == len(times):
        return piece, absent
    numbers = rows if piece.rows is None else piece.rows[rows]
    return replace(piece, batch=piece.batch.take(pa.array(rows)), rows=numbers), absent[rows]


def _of_texts(texts: pa.Array, unit: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Does the work of `times_of` for texts: each is a number, a timestamp or neither, independent of the others."""
    alike = _all_alike(texts, unit)
    if alike is not None:
        return alike
    # What does not even look like a time is put aside at once, since what follows is slow where many texts are wrong.
    return _halved(pc.if_else(pc.match_substring_regex(texts, _LOOK), texts, pa.scalar(None, texts.type)), unit)


def _all_alike(texts: pa.Array, unit: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    for kind in _WRITTEN:
        try:
            return times_of(texts.cast(kind), unit)
        except pa.ArrowInvalid:  # not all of them are
            continue
    return None


def _halved(texts: pa.Array, unit: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    alike = _all_alike(texts, unit)
    if alike is not None:
        return alike
    if len(texts) == 1:
        return np.zeros(1, np.int64), np.ones(1, np.bool_)
    middle = len(texts) // 2
    halves = [_halved(half, unit) for half in (texts.slice(0, middle), texts.slice(middle))]
    return np.concatenate([times for times, _ in halves]), np.concatenate([absent for _, absent in halves])
