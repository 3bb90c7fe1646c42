"""Texts that are lists: the character between their values, guessed from the look of the values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from esd.data.tables.lists import BRACKETS, lists_of

_SEPARATORS = ("|", ";", ",", " ")  # the first of equally frequent ones counts
_LEAST_SHARE = 0.05  # of the texts that are not empty must have it


def found_separator(column: pa.Array) -> str | None:
    """Returns the separator of the values in the texts of a column, None if they look like single values.

    Texts that are all written as Python and JSON write lists, `[1, 2]`, have commas.

    Separated values come in lists of different lengths, none of them is empty or begins or ends with a space or, as in
    lists of JSON, a bracket, and there are no more different ones than there are different lists. Values between spaces
    have a digit besides, since texts whose words stand between spaces are no lists.
    """
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        return None
    counted = column.drop_null().value_counts()
    texts, counts = counted.field("values").cast(pa.large_string()), counted.field("counts")
    filled = pc.not_equal(texts, "")
    texts, counts = texts.filter(filled), counts.filter(filled)
    if len(texts) and _all(pc.match_substring_regex(texts, BRACKETS)):
        return ","
    rows = pc.sum(counts).as_py() or 0
    shares = {each: _rows_with(each, texts, counts) / max(1, rows) for each in _SEPARATORS}
    fitting = [each for each, share in shares.items() if share >= _LEAST_SHARE and _separates(each, texts)]
    return max(fitting, key=shares.__getitem__, default=None)


def _rows_with(separator: str, texts: pa.Array, counts: pa.Array) -> int:
    having: int | None = pc.sum(counts.filter(pc.match_substring(texts, separator))).as_py()
    return having or 0


def _separates(separator: str, texts: pa.Array) -> bool:
    values, lengths = lists_of(texts, separator)
    different = values.unique()
    if lengths.min() == lengths.max() or len(different) > len(texts):
        return False
    trimmed = pc.utf8_trim(different, " \t\r\n[]{}")
    if not _all(pc.and_(pc.equal(trimmed, different), pc.not_equal(different, ""))):
        return False
    return separator != " " or _all(pc.match_substring_regex(different, r"\d"))


def _all(truths: pa.Array) -> bool:
    return bool(pc.all(truths).as_py())
