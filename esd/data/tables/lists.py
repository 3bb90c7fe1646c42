"""Columns of lists become ids: lists of Arrow, or texts that are split."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

BRACKETS = r"^\s*\[\s*(.*?)\s*\]\s*$"  # around a list of Python or JSON


def is_list(kind: pa.DataType) -> bool:
    """Tells whether a column of this type has a list in every row."""
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def lists_of(column: pa.Array, separator: str) -> tuple[pa.Array, NDArray[np.int64]]:
    """Returns the values of all rows, one list behind the other, and the length of each row's list, int64 [n].

    An absent list is empty. So is an empty text; other texts have one value more than separators. With a comma as the
    separator, lists may be written as Python and JSON write them: `[1, 2]`, `['a', 'b']`.
    """
    if not is_list(column.type):
        texts = column.cast(pa.large_string())
        bracketed = pc.match_substring_regex(texts, BRACKETS) if separator == "," else None
        if bracketed is not None and pc.any(bracketed).as_py():
            return _of_brackets(texts, bracketed)
        column = _split(texts, separator)
    elif kinds.is_fixed_size_list(column.type):
        column = column.cast(pa.large_list(column.type.value_type))
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return column.flatten(), lengths


def _split(texts: pa.Array, separator: str) -> pa.Array:
    return pc.split_pattern(pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts), separator)


def _of_brackets(texts: pa.Array, bracketed: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    bare = pc.replace_substring_regex(texts, BRACKETS, r"\1")
    column = _split(pc.if_else(bracketed, bare, texts), ",")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    within = pa.array(np.repeat(bracketed.fill_null(False).to_numpy(zero_copy_only=False), lengths))
    values = column.flatten()
    return pc.if_else(within, pc.utf8_trim(values, " '\""), values), lengths


def first_of_lists(lengths: NDArray[np.int64], most: int) -> NDArray[np.bool_]:
    """Tells which values are among the first `most` of their list, bool [sum of lengths]."""
    begins = np.cumsum(lengths) - lengths
    places = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
    return places < most
