"""Numbers of a column: as they are, or texts that say them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

POINT, COMMA = ".", ","
_NUMBER = r"^([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(inf|infinity))$"
_ABSENT = pa.array(["", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "#n/a n/a", "\\n"])  # in lower case
_WITH_COMMA = r"^\s*[-+]?[0-9]+,[0-9]+\s*$"


def numbers_of(column: pa.Array, decimal: str = POINT) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Returns a column's numbers, float64 [n], NaN where there is none, and which texts are none, bool [n].

    True and false are 1 and 0. Texts that stand for an absent value, such as `NA`, are NaN and no mistake.

    Args:
        column: numbers, truth values, or texts.
        decimal: the mark before the fraction of a number that is a text.
    """
    if kinds.is_string(column.type):
        return _of_texts(column, decimal)
    numbers: NDArray[np.float64] = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return numbers, None


def have_comma(texts: pa.Array) -> NDArray[np.bool_]:
    """Tells which texts are numbers with a comma before the fraction, bool [n]."""
    found = pc.match_substring_regex(texts, _WITH_COMMA).fill_null(False)
    having: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return having


def _of_texts(texts: pa.Array, decimal: str) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    if decimal == POINT:
        try:
            return np.array(texts.cast(pa.float64()).to_numpy(zero_copy_only=False)), None
        except pa.ArrowInvalid:  # some are absent, or no numbers
            pass
    words = pc.ascii_lower(pc.utf8_trim_whitespace(texts))
    absent = pc.or_kleene(words.is_null(), pc.is_in(words, _ABSENT))
    written = words
    if decimal == COMMA:  # a point would be something else, such as a thousand
        written = pc.replace_substring(pc.replace_substring(words, POINT, "?"), COMMA, POINT)
    for truth, number in (("true", "1"), ("false", "0")):
        written = pc.if_else(pc.equal(written, truth), number, written)
    right = pc.match_substring_regex(written, _NUMBER)
    written = pc.if_else(right, written, None)
    wrong: NDArray[np.bool_] = pc.and_not(pc.invert(right.fill_null(False)), absent).to_numpy(zero_copy_only=False)
    numbers = np.array(written.cast(pa.float64()).to_numpy(zero_copy_only=False))
    return numbers, wrong if wrong.any() else None
