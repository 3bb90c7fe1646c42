"""Arrow columns become samples: values are hashed to ids, numbers checked, absent values replaced or refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.data.schema import CROSS, REFUSE, Id, IdList, Schema
from esd.data.split import TIME
from esd.data.tables.lists import first_of_lists, is_list, lists_of
from esd.data.tables.numbers import COMMA, POINT, have_comma, numbers_of
from esd.data.tables.times import is_time
from esd.native import text as native
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import in_table
from esd.services.domain.sites import site_key

# Types whose text is the value.
_WRITTEN = (kinds.is_boolean, kinds.is_temporal, kinds.is_decimal, kinds.is_binary_view, kinds.is_string_view)


_BINARY = "the label 0 or 1 (positive-from or label-range in the schema is for other numbers, positive for texts)"
_WHOLE = "a whole number (pandas makes whole numbers floats where some are absent)"
_TRUTHS = {"True": "true", "False": "false"}  # as native.hash_texts has them
_DATA = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?|")
_EXACT = 2.0**53  # up to here a float tells whole numbers apart


def looks_like_data(name: str) -> bool:
    """Tells whether the name of a column is a number or empty, so that a file's first line may be no header."""
    return _DATA.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Rows of a batch that are no samples, for one reason.

    Attributes:
        column: where it was found.
        rows: bool [n].
        expected: the expected value, in words.
    """

    column: str
    rows: NDArray[np.bool_]
    expected: str


def check_types(
    schema: Schema, found: pa.Schema, source: str, *, texts: Collection[str] = (), labelled: bool = True
) -> None:
    """Checks that a file or frame has the schema's columns, and that each has a type that the schema can use.

    Args:
        schema: the schema.
        found: the columns that are there.
        source: the file or frame, for messages.
        texts: names of columns whose values are texts in a file; which of them is no number is reported when it is
            read.
        labelled: whether the labels must be there.

    Raises:
        InvalidArgument: names source and column.
    """
    for name in dict.fromkeys([*schema.columns, *schema.sites, *schema.times]):
        if name in schema.labels and not labelled:
            continue
        index = found.get_all_field_indices(name)
        if len(index) != 1:
            times = "no" if not index else "more than one"
            doubt = ": has it no header?" if texts and any(map(looks_like_data, found.names)) else ""
            raise InvalidArgument(
                f"{source} has {times} column {name!r}; its columns are {', '.join(found.names)}{doubt}"
            )
        kind = found.field(index[0]).type
        expected = "" if name in texts else _expected_type(schema, name, kind)
        if expected:
            raise InvalidArgument(f"{source}: column {name!r} is of type {kind}, {expected}")


def _expected_type(schema: Schema, name: str, kind: pa.DataType) -> str:
    """Returns the expectation that a column's type violates, in words; empty: it fits."""
    if kinds.is_null(kind):  # no row has a value
        return (
            "" if name in schema.missing or name in schema.lists else f"which has no value: expected {_a_value(name)}"
        )
    if name == schema.time and not is_time(kind):
        return f"expected {TIME}"
    if name == schema.site and not (is_category(kind) and not is_list(kind)):
        return "a site is a text or a whole number"
    if name in schema.lists:
        fits = _can_be_ids(kind.value_type) if is_list(kind) else is_category(kind)
        return "" if fits else "lists are of texts, numbers or dates"
    if name in schema.categories:
        hint = ": give its max (esd.IdList)" if is_list(kind) else ""
        return "" if _can_be_ids(kind) else f"ids are texts, whole numbers or dates{hint}"
    return _expected_number(schema, name, kind) if name in schema.number_names else ""


def _expected_number(schema: Schema, name: str, kind: pa.DataType) -> str:
    if name not in schema.labels:
        what = "the weight" if name == schema.weight else "a dense feature"
        return "" if is_number(kind) else f"{what} is a number"
    if schema.positive:
        return "" if is_category(kind) else "with `positive` the label is a text or a whole number"
    return "" if is_number(kind) else "the label is a number (positive in the schema names the texts that are 1)"


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of one feature in n rows: one behind the other, and how many each row has, None: one."""

    values: NDArray[np.uint64]
    lengths: NDArray[np.int64] | None = None


def samples_of(
    batch: pa.RecordBatch, schema: Schema, *, labelled: bool, sites: Sequence[str] = ()
) -> tuple[SampleBatch, list[Mistakes]]:
    """Makes n samples of a batch with the schema's columns, and tells which of them are none.

    Without labels they are NaN, so that no job takes the samples in. They have sites if workers have any.
    """
    mistakes: list[Mistakes] = []
    columns = [_column_ids(batch, each, schema, mistakes) for each in schema.id_columns]
    of_column = {each.column: ids.values for each, ids in zip(schema.id_columns, columns, strict=True)}
    columns += [_Ids(derived_ids(CROSS.join(cross), *(of_column[name] for name in cross))) for cross in schema.crosses]
    if len(schema.table_names) > 1:
        numbers = [feature.table for feature in schema.features]
        columns = [_Ids(in_table(ids.values, at), ids.lengths) for ids, at in zip(columns, numbers, strict=True)]
    ids, lengths = _by_sample(columns, len(batch))

    dense = np.empty((len(batch), len(schema.dense)), np.float32)
    for position, name in enumerate(schema.dense):
        with np.errstate(over="ignore"):  # which is among the mistakes
            dense[:, position] = _dense(batch.column(name), name, schema, mistakes)
    labels = np.full((len(batch), len(schema.labels)), np.nan, np.float32)
    if labelled:
        for position, name in enumerate(schema.labels):
            labels[:, position] = _labels(batch.column(name), name, schema, mistakes)
    weights = groups = None
    if schema.weight is not None:
        weights = _dense(batch.column(schema.weight), schema.weight, schema, mistakes).astype(np.float32)
        mistakes.append(Mistakes(schema.weight, weights < 0, "a weight that is not negative"))
    if schema.group is not None:
        groups = _single_ids(batch.column(schema.group), Id(schema.group), schema, mistakes)
    keys = None
    if schema.site is not None and sites:
        keys = _sites(batch.column(schema.site), schema.site, sites, mistakes)
    samples = SampleBatch(ids, dense, labels, lengths, weights, groups, keys)
    return samples, [each for each in mistakes if each.rows.any()]


def _sites(column: pa.Array, name: str, sites: Sequence[str], mistakes: list[Mistakes]) -> NDArray[np.uint64]:
    """Returns the keys of the sites of n samples, uint64 [n]; a value that is no site of a worker is a mistake."""
    places = pc.index_in(column.cast(pa.string()), pa.array(sites, pa.string()))
    without = places.is_null().to_numpy(zero_copy_only=False)
    mistakes.append(Mistakes(name, without, f"a site with workers, {', '.join(map(repr, sites))} (--sites)"))
    keys = np.array([site_key(site) for site in sites], np.uint64)
    found: NDArray[np.uint64] = keys[places.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def _column_ids(batch: pa.RecordBatch, described: Id | IdList, schema: Schema, mistakes: list[Mistakes]) -> _Ids:
    column = batch.column(described.column)
    if isinstance(described, IdList):
        return _list_ids(column, described, schema, mistakes)
    return _Ids(_single_ids(column, described, schema, mistakes))


def _key(described: Id | IdList) -> int:
    return field_key(described.column if described.table is None else described.table)


def _single_ids(column: pa.Array, described: Id, schema: Schema, mistakes: list[Mistakes]) -> NDArray[np.uint64]:
    column, broken = _whole_numbers(column)
    if broken is not None:
        mistakes.append(Mistakes(described.column, broken, _WHOLE))
    ids, absent = hashed(column, _key(described)), _absent(column)
    if absent is not None and not _replaced(ids, absent, described, schema):
        mistakes.append(Mistakes(described.column, absent, _a_value(described.column)))
    return ids


def _whole_numbers(column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Returns floats as whole numbers, absent where they are NaN, and marks those with a fraction or beyond 2^53."""
    if not kinds.is_floating(column.type):
        return column, None
    numbers: NDArray[np.float64] = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    absent = np.isnan(numbers)
    broken = ~absent & ((np.abs(numbers) > _EXACT) | (np.floor(numbers) != numbers))
    right = np.where(absent | broken, 0, numbers).astype(np.int64)
    return pa.array(right, mask=absent), broken if broken.any() else None


def _list_ids(column: pa.Array, described: IdList, schema: Schema, mistakes: list[Mistakes]) -> _Ids:
    values, lengths = lists_of(column, described.separator)
    values, broken = _whole_numbers(values)
    if broken is not None:
        mistakes.append(Mistakes(described.column, _rows_with(broken, lengths), f"{_WHOLE} in every place of the list"))
    ids, absent = hashed(values, _key(described)), _absent(values)
    if absent is not None and not _replaced(ids, absent, described, schema):
        expected = f"{_a_value(described.column)} in every place of the list"
        mistakes.append(Mistakes(described.column, _rows_with(absent, lengths), expected))
    too_long = lengths > described.max
    if not too_long.any():
        return _Ids(ids, lengths)
    if described.longer == REFUSE:
        expected = f"at most {described.max} values (longer = 'cut' in the schema keeps the first ones)"
        mistakes.append(Mistakes(described.column, too_long, expected))
    return _Ids(ids[first_of_lists(lengths, described.max)], np.minimum(lengths, described.max))


def _rows_with(values: NDArray[np.bool_], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns which rows have one of the values that are marked, bool [n]."""
    rows = np.zeros(len(lengths), np.bool_)
    rows[np.repeat(np.arange(len(lengths)), lengths)[values]] = True
    return rows


def _absent(column: pa.Array) -> NDArray[np.bool_] | None:
    """Tells which values are absent, bool [n]; None if none is. In a dictionary, the value itself may be."""
    if kinds.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _replaced(ids: NDArray[np.uint64], absent: NDArray[np.bool_], described: Id | IdList, schema: Schema) -> bool:
    """Puts the stand-in's id in the places of absent values. False if there is no stand-in."""
    if described.column not in schema.missing:
        return False
    text = str(schema.missing[described.column])
    ids[absent] = hash_bytes(_key(described), _TRUTHS.get(text, text).encode())
    return True


def _by_sample(columns: list[_Ids], count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32] | None]:
    """Puts the ids of n samples together, sample by sample; the lengths are [n, F], None if all are one."""
    if all(column.lengths is None for column in columns):
        return np.stack([column.values for column in columns], axis=1).reshape(-1), None
    ones = np.ones(count, np.int64)
    lengths = np.stack([ones if column.lengths is None else column.lengths for column in columns], axis=1)
    begins = (np.cumsum(lengths.reshape(-1)) - lengths.reshape(-1)).reshape(lengths.shape)
    ids = np.empty(int(lengths.sum()), np.uint64)
    for field, column in enumerate(columns):
        of_field = lengths[:, field]
        within = np.arange(len(column.values)) - np.repeat(np.cumsum(of_field) - of_field, of_field)
        ids[np.repeat(begins[:, field], of_field) + within] = column.values
    return ids, lengths.astype(np.uint32)


def hashed(column: pa.Array, key: int) -> NDArray[np.uint64]:
    """Hashes a column, uint64 [n]; the id of an absent value means nothing."""
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
        return native.hash_integers(key, column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False))
    _, offsets, text = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(len(column), np.uint64)
    part = slice(column.offset, column.offset + len(column) + 1)
    values = np.frombuffer(text or b"", np.uint8)
    if kinds.is_large_string(column.type) or kinds.is_large_binary(column.type):
        return native.hash_texts(key, np.frombuffer(offsets, np.int64)[part], values)
    return native.hash_texts(key, np.frombuffer(offsets, np.int32)[part], values)


def _numbers(
    column: pa.Array, name: str, expected: str, schema: Schema, mistakes: list[Mistakes]
) -> NDArray[np.float64]:
    """Returns a column's numbers, float64 [n], 0 where a text is none, which is a mistake; NaN are those absent."""
    decimal = schema.decimal or POINT
    numbers, wrong = numbers_of(column, decimal)
    if wrong is None:
        return numbers
    if decimal != COMMA and (with_comma := wrong & have_comma(column)).any():
        mistakes.append(Mistakes(name, with_comma, f"{expected} (decimal = ',' in the schema is for such)"))
    mistakes.append(Mistakes(name, wrong, expected))
    numbers[wrong] = 0.0
    return numbers


def _dense(column: pa.Array, name: str, schema: Schema, mistakes: list[Mistakes]) -> NDArray[np.float64]:
    numbers = _numbers(column, name, "a number", schema, mistakes)
    absent = np.isnan(numbers)
    if absent.any():
        if name in schema.missing:
            numbers[absent] = schema.missing[name]
        else:
            mistakes.append(Mistakes(name, absent, _a_value(name)))
    mistakes.append(Mistakes(name, np.abs(numbers) > np.finfo(np.float32).max, "a number that float32 holds"))
    return np.log1p(np.maximum(numbers, 0.0)) if name in schema.log else numbers


def _labels(column: pa.Array, name: str, schema: Schema, mistakes: list[Mistakes]) -> NDArray[np.float32]:
    if schema.positive:
        return _text_labels(column, name, schema.positive, mistakes)
    binary = schema.positive_from is None and schema.label_range is None
    numbers = _numbers(column, name, _BINARY if binary else "a number", schema, mistakes)
    if schema.positive_from is not None:
        mistakes.append(Mistakes(name, np.isnan(numbers), "a label"))
        return (numbers >= schema.positive_from).astype(np.float32)
    if schema.label_range is None:
        mistakes.append(Mistakes(name, (numbers != 0) & (numbers != 1), _BINARY))
    else:
        least, most = schema.label_range
        fits = (numbers >= least) & (numbers <= most) & (np.abs(numbers) <= np.finfo(np.float32).max)
        mistakes.append(Mistakes(name, ~fits, f"a label in {least:g}..{most:g}"))
    return numbers.astype(np.float32)


def _text_labels(
    column: pa.Array, name: str, positive: tuple[str, ...], mistakes: list[Mistakes]
) -> NDArray[np.float32]:
    texts = column.cast(pa.string())
    absent = pc.or_kleene(texts.is_null(), pc.equal(texts, ""))
    mistakes.append(Mistakes(name, absent.to_numpy(zero_copy_only=False), "a label"))
    labels: NDArray[np.bool_] = pc.is_in(texts, pa.array(positive)).to_numpy(zero_copy_only=False)
    return labels.astype(np.float32)


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


def _can_be_ids(kind: pa.DataType) -> bool:
    return is_category(kind) or kinds.is_floating(kind)


def same_ids(one: pa.DataType, other: pa.DataType) -> bool:
    """Tells whether equal values of columns of these types have equal ids."""
    return one == other or _family(one) == _family(other) != ""


def _family(kind: pa.DataType) -> str:
    if kinds.is_dictionary(kind):
        return _family(kind.value_type)
    if is_list(kind):
        family = _family(kind.value_type)
        return family and f"lists of {family}"
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return "whole numbers"
    texts = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    return "texts" if any(check(kind) for check in texts) else ""


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
