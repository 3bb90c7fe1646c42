"""Arrow columns become samples: values are hashed to ids, numbers checked, absent values replaced or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd_native.text import hash_integers, hash_texts
from services.data.hashing import derived_ids, field_key, hash_bytes
from services.data.schema import CROSS, Schema
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument

# Types whose text is the value.
_WRITTEN = (kinds.is_boolean, kinds.is_temporal, kinds.is_decimal, kinds.is_binary_view, kinds.is_string_view)


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Rows of a batch that are no samples, for one reason.

    Attributes:
        column: where it was found.
        rows: bool [n].
        expected: what should be there.
    """

    column: str
    rows: NDArray[np.bool_]
    expected: str


def check_types(schema: Schema, found: pa.Schema, source: str, *, written: bool = False) -> None:
    """Checks that a file or frame has the schema's columns, and that each can be what the schema says.

    Args:
        schema: the schema.
        found: the columns that are there.
        source: the file or frame, for messages.
        written: whether the values are texts in a file; which of them is no number is then told when it is read.

    Raises:
        InvalidArgument: names source and column.
    """
    for name in schema.columns:
        index = found.get_all_field_indices(name)
        if len(index) != 1:
            times = "no" if not index else "more than one"
            raise InvalidArgument(f"{source} has {times} column {name!r}; its columns are {', '.join(found.names)}")
        kind = found.field(index[0]).type
        if written:
            continue
        if name in schema.ids and not is_category(kind):
            raise InvalidArgument(f"{source}: column {name!r} is of type {kind}, ids are texts, whole numbers or dates")
        if name not in schema.ids and not is_number(kind):
            what = "the label" if name == schema.label else "a dense feature"
            raise InvalidArgument(f"{source}: column {name!r} is of type {kind}, {what} is a number")


def samples_of(batch: pa.RecordBatch, schema: Schema) -> tuple[SampleBatch, list[Mistakes]]:
    """Makes n samples of a batch with the schema's columns, and tells which of them are none."""
    mistakes: list[Mistakes] = []
    ids = np.empty((len(batch), len(schema.fields)), np.uint64)
    for position, name in enumerate(schema.ids):
        column = batch.column(name)
        ids[:, position] = hashed(column, field_key(name))
        if column.null_count:
            absent = column.is_null().to_numpy(zero_copy_only=False)
            if name in schema.missing:
                ids[absent, position] = hash_bytes(field_key(name), str(schema.missing[name]).encode())
            else:
                mistakes.append(Mistakes(name, absent, _a_value(name)))
    for position, cross in enumerate(schema.crosses, start=len(schema.ids)):
        ids[:, position] = derived_ids(CROSS.join(cross), *(ids[:, schema.ids.index(name)] for name in cross))

    dense = np.empty((len(batch), len(schema.dense)), np.float32)
    for position, name in enumerate(schema.dense):
        dense[:, position] = _dense(batch.column(name), name, schema, mistakes)
    labels = _labels(batch.column(schema.label), schema, mistakes)
    return SampleBatch.of_fields(ids, dense, labels), [each for each in mistakes if each.rows.any()]


def hashed(column: pa.Array, key: int) -> NDArray[np.uint64]:
    """Hashes a column, uint64 [n]; what an absent value gets means nothing."""
    kind = column.type
    if kinds.is_dictionary(kind):
        if len(column.dictionary) == 0:  # all values are absent
            return np.zeros(len(column), np.uint64)
        indices: NDArray[np.integer] = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        ids: NDArray[np.uint64] = hashed(column.dictionary, key)[indices]
        return ids
    if any(written(kind) for written in _WRITTEN):
        column = column.cast(pa.string())
    elif kinds.is_integer(kind):
        whole = pa.uint64() if kinds.is_unsigned_integer(kind) else pa.int64()
        return hash_integers(key, column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False))
    _, offsets, text = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(len(column), np.uint64)
    part = slice(column.offset, column.offset + len(column) + 1)
    values = np.frombuffer(text or b"", np.uint8)
    if kinds.is_large_string(column.type) or kinds.is_large_binary(column.type):
        return hash_texts(key, np.frombuffer(offsets, np.int64)[part], values)
    return hash_texts(key, np.frombuffer(offsets, np.int32)[part], values)


def _dense(column: pa.Array, name: str, schema: Schema, mistakes: list[Mistakes]) -> NDArray[np.float64]:
    numbers = numbers_of(column)
    absent = np.isnan(numbers)
    if absent.any():
        if name in schema.missing:
            numbers[absent] = schema.missing[name]
        else:
            mistakes.append(Mistakes(name, absent, _a_value(name)))
    mistakes.append(Mistakes(name, np.abs(numbers) > np.finfo(np.float32).max, "a number that float32 holds"))
    return np.log1p(np.maximum(numbers, 0.0)) if name in schema.log else numbers


def _labels(column: pa.Array, schema: Schema, mistakes: list[Mistakes]) -> NDArray[np.float32]:
    numbers = numbers_of(column)
    if schema.positive_from is None:
        mistakes.append(Mistakes(schema.label, (numbers != 0) & (numbers != 1), "the label 0 or 1"))
        return numbers.astype(np.float32)
    mistakes.append(Mistakes(schema.label, np.isnan(numbers), "a label"))
    return (numbers >= schema.positive_from).astype(np.float32)


def numbers_of(column: pa.Array) -> NDArray[np.float64]:
    """Returns a column's numbers, float64 [n]; NaN where there is none."""
    numbers: NDArray[np.float64] = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return numbers


def is_number(kind: pa.DataType) -> bool:
    """Tells whether a column of this type can be a label or a dense feature."""
    checks = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    return any(check(kind) for check in checks)


def is_category(kind: pa.DataType) -> bool:
    """Tells whether a column of this type can be ids."""
    if kinds.is_dictionary(kind):
        return is_category(kind.value_type)
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary, kinds.is_integer)
    return any(check(kind) for check in (*texts, *_WRITTEN))


def _a_value(name: str) -> str:
    return f"a value (missing.{name} in the schema would stand for it)"


def without(samples: SampleBatch, mistakes: list[Mistakes]) -> SampleBatch:
    """Leaves out the rows that are no samples."""
    wrong = np.logical_or.reduce([each.rows for each in mistakes])
    return samples[np.flatnonzero(~wrong)]


def wrong_rows(mistakes: list[Mistakes]) -> Iterator[tuple[int, Mistakes]]:
    """Yields each row that is no sample, in order, with the first reason for it."""
    seen: dict[int, Mistakes] = {}
    for each in mistakes:
        for row in np.flatnonzero(each.rows):
            seen.setdefault(int(row), each)
    yield from sorted(seen.items(), key=lambda entry: entry[0])


def shown(value: Any) -> str:
    """Returns a value as a message shows it: at most 40 characters."""
    return repr(value.as_py())[:40]
