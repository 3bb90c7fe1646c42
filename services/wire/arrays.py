"""Arrays as bytes: little-endian, densely packed, row-major.

A caller must read a protobuf `bytes` field once, because every access copies it. Decoded arrays are read-only views of
the bytes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from esd.services.domain.errors import InvalidArgument


def encode_array(array: NDArray[Any], dtype: DTypeLike, field: str) -> bytes:
    """Encodes an array, without converting it to `dtype`: a silent conversion could change ids or versions.

    Raises:
        TypeError: the array has another dtype.
    """
    if array.dtype != dtype:
        raise TypeError(f"{field} is {array.dtype}, the contract requires {np.dtype(dtype)}")
    return array.astype(_little_endian(np.dtype(dtype)), copy=False).tobytes()


def decode_array(data: bytes | bytearray, dtype: DTypeLike, shape: tuple[int, ...], field: str) -> NDArray[Any]:
    """Decodes the array in a field. Raises InvalidArgument if the bytes do not have exactly the size of `shape`."""
    little = _little_endian(np.dtype(dtype))
    size = math.prod(shape) * little.itemsize
    if len(data) != size:
        raise InvalidArgument(f"{field} has {len(data)} bytes, {np.dtype(dtype)} {list(shape)} needs {size}")
    return np.frombuffer(data, little).reshape(shape)


def decode_column(data: bytes, dtype: DTypeLike, field: str) -> NDArray[Any]:
    """Decodes the one-dimensional array in a field; its length follows from the bytes.

    Raises:
        InvalidArgument: the number of bytes is not a multiple of the size of a value.
    """
    little = _little_endian(np.dtype(dtype))
    if len(data) % little.itemsize:
        raise InvalidArgument(
            f"{field} has {len(data)} bytes, which is not a multiple of the {little.itemsize} of {np.dtype(dtype)}"
        )
    return np.frombuffer(data, little)


@cache
def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")
