"""References to samples whose labels and dense features stay at their site.

A reference is one number of 64 bits: above, the key of a site's values (`esd data site-values`), below, a row of them.
So a batch may refer to the values of several sites, and of several submitters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument

_ROW_BITS = 40
MOST_REFERRED_ROWS = 1 << _ROW_BITS  # of one site's values


def key_of_digest(digest: bytes) -> int:
    """Returns the key of values with this digest: its first 24 bits, which other values share once in 16 million."""
    return int.from_bytes(digest[: (64 - _ROW_BITS) // 8], "big")


def references_to(key: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns the references to rows, [k], of the values with this key: uint64 [k].

    Raises:
        InvalidArgument: a row is too large.
    """
    if len(rows) and int(rows.max()) >= MOST_REFERRED_ROWS:
        raise InvalidArgument(
            f"row {int(rows.max())} of a site's values cannot be referred to, there may be {MOST_REFERRED_ROWS} rows"
        )
    return np.uint64(key << _ROW_BITS) | rows.astype(np.uint64)


def keys_of(references: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the key of the values that each reference names, uint64 [k]."""
    return references >> np.uint64(_ROW_BITS)


def rows_of(references: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the row that each reference names, int64 [k]."""
    return (references & np.uint64(MOST_REFERRED_ROWS - 1)).astype(np.int64)
