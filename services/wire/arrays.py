"""Arrays as bytes: little-endian, densely packed, row-major.

Read a protobuf `bytes` field once: every access copies it. Decoded arrays are read-only views of the bytes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from esd.services.domain.errors import InvalidArgument


def encode_array(array: NDArray[Any], dtype: DTypeLike, field: str) -> bytes:
    """Encodes an array that must have `dtype` already: a silent conversion could change ids or versions."""
    if array.dtype != dtype:
        raise TypeError(f"{field} is {array.dtype}, the contract says {np.dtype(dtype)}")
    return array.astype(_little_endian(np.dtype(dtype)), copy=False).tobytes()


def decode_array(data: bytes, dtype: DTypeLike, shape: tuple[int, ...], field: str) -> NDArray[Any]:
    """Decodes the array of exactly `shape` in a field; raises InvalidArgument if the bytes are more or fewer."""
    little = _little_endian(np.dtype(dtype))
    size = math.prod(shape) * little.itemsize
    if len(data) != size:
        raise InvalidArgument(f"{field} has {len(data)} bytes, {np.dtype(dtype)} {list(shape)} needs {size}")
    return np.frombuffer(data, little).reshape(shape)


def decode_column(data: bytes, dtype: DTypeLike, field: str) -> NDArray[Any]:
    """Decodes the one-dimensional array in a field; its length follows from the bytes."""
    little = _little_endian(np.dtype(dtype))
    if len(data) % little.itemsize:
        raise InvalidArgument(
            f"{field} has {len(data)} bytes, which is no multiple of the {little.itemsize} of {np.dtype(dtype)}"
        )
    return np.frombuffer(data, little)


@cache
def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")
