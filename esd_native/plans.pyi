"""Plans on the worker, native.

Columns of integers travel packed: each value in as many bits as the widest needs above the least one
(protos/dispatcher.proto, Transfers).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def pack(values: NDArray[Any]) -> bytes:
    """Packs a column: uint64, uint32 or int64 [r], C-contiguous. Raises TypeError for any other."""

def unpack_uint64(data: bytes, count: int | None = None) -> NDArray[np.uint64]:
    """Reads a packed column.

    Args:
        data: its bytes.
        count: how many values there must be; None: as many as it says, at most eight for each byte.

    Returns:
        uint64 [r].

    Raises:
        ValueError: another number of values, or bytes that are no packed column; the text goes on after the name of
            the column.
    """

def unpack_uint32(data: bytes, count: int | None = None) -> NDArray[np.uint32]:
    """Does the same for values of 32 bits. Raises ValueError for wider ones, too."""

def unpack_int64(data: bytes, count: int | None = None) -> NDArray[np.int64]:
    """Does the same for signed values."""
