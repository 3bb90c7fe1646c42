"""Tensors of the Open Inference Protocol, and their values from raw bytes, lists of JSON and gRPC's typed contents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.protos import inference_pb2
from esd.services.domain.errors import InvalidArgument

BYTES, BOOL = "BYTES", "BOOL"
_NUMBERS = MappingProxyType(
    {
        BOOL: np.dtype(np.bool_),
        **{f"{sign}INT{bits}": np.dtype(f"{sign.lower()}int{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)},
        "FP16": np.dtype(np.float16),
        "FP32": np.dtype(np.float32),
        "FP64": np.dtype(np.float64),
    }
)
_CONTENTS = MappingProxyType(
    {
        BOOL: "bool_contents",
        **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
        "INT64": "int64_contents",
        **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        BYTES: "bytes_contents",
    }
)
_MOST_DIMENSIONS = 8
_LENGTH_BYTES = 4  # before each text of a raw tensor
_SHOWN = 60  # characters of a name or a value in a message


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input of a request.

    Attributes:
        name: unique in its request.
        datatype: of the protocol.
        shape: its dimensions.
        values: the values row by row; of BYTES a list of bytes.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: NDArray[Any] | list[bytes]


@dataclass(frozen=True, slots=True)
class Described:
    """Name, data type and shape of a tensor whose values are still to be read.

    Raises:
        InvalidArgument: the protocol has no such type or shape.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.datatype != BYTES and self.datatype not in _NUMBERS:
            raise InvalidArgument(
                f"{self} has the datatype {shown(self.datatype)}; choose from {', '.join((*_NUMBERS, BYTES))}"
            )
        if not 1 <= len(self.shape) <= _MOST_DIMENSIONS:
            raise InvalidArgument(f"{self} has {len(self.shape)} dimensions, it must have 1..{_MOST_DIMENSIONS}")
        if min(self.shape) < 0:
            raise InvalidArgument(f"{self} has the shape {list(self.shape)}, no dimension may be negative")

    def __str__(self) -> str:
        return f"input {shown(self.name)}"

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    def of_raw(self, data: bytes | memoryview) -> Tensor:
        """Reads values of the protocol's binary form.

        Raises:
            InvalidArgument: their size does not fit the shape, or a text does not fit into them.
        """
        if self.datatype == BYTES:
            return self._tensor(self._texts(bytes(data)))
        dtype = _NUMBERS[self.datatype]
        if len(data) != self.count * dtype.itemsize:
            raise InvalidArgument(
                f"{self} has {len(data)} bytes, and {self.datatype} of shape {list(self.shape)} has "
                f"{self.count * dtype.itemsize}"
            )
        if self.datatype == BOOL:
            return self._tensor(np.frombuffer(data, np.uint8) != 0)
        return self._tensor(np.frombuffer(data, dtype.newbyteorder("<")))

    def of_list(self, data: Sequence[Any]) -> Tensor:
        """Reads values from a list of JSON, flat or nested as the shape is.

        Raises:
            InvalidArgument: the list has another number of values, or a value of another kind or range.
        """
        flat = data
        for _ in self.shape[1:]:
            if not flat or not all(isinstance(each, list) for each in flat):
                break
            flat = list(chain.from_iterable(flat))
        if len(flat) != self.count:
            raise InvalidArgument(f"{self} has {len(flat)} values, and the shape {list(self.shape)} has {self.count}")
        allowed, words = _kinds(self.datatype)
        if not set(map(type, flat)) <= allowed:
            wrong = next(each for each in flat if type(each) not in allowed)
            raise InvalidArgument(f"{self} has the value {shown(wrong)}, {self.datatype} takes {words}")
        if self.datatype == BYTES:
            try:
                return self._tensor([each.encode() for each in flat])
            except UnicodeEncodeError:
                raise InvalidArgument(f"{self} has a text that UTF-8 cannot write") from None
        return self._tensor(self._numbers(flat))

    def of_contents(self, contents: inference_pb2.InferTensorContents) -> Tensor:
        """Reads values of gRPC's typed form.

        Raises:
            InvalidArgument: values are in the field of another data type, or are more or fewer than the shape has; or
                the data type has no such field.
        """
        field = _CONTENTS.get(self.datatype)
        if field is None:
            raise InvalidArgument(f"{self} of {self.datatype} has no typed contents: send raw_input_contents")
        others = [each.name for each, _ in contents.ListFields() if each.name != field]
        if others:
            raise InvalidArgument(f"{self} has values in {others[0]}, those of {self.datatype} are in {field}")
        values = getattr(contents, field)
        if len(values) != self.count:
            raise InvalidArgument(
                f"{self} has {len(values)} values in {field}, and the shape {list(self.shape)} has {self.count}"
            )
        return self._tensor(list(values) if self.datatype == BYTES else self._numbers(values))

    def _tensor(self, values: NDArray[Any] | list[bytes]) -> Tensor:
        return Tensor(self.name, self.datatype, self.shape, values)

    def _numbers(self, values: Sequence[Any]) -> NDArray[Any]:
        dtype = _NUMBERS[self.datatype]
        try:
            with np.errstate(over="ignore"):  # an infinite number is refused like one that was sent
                return np.array(values, dtype)
        except OverflowError:
            raise InvalidArgument(f"{self} has a value beyond the range of {self.datatype}") from None

    def _texts(self, data: bytes) -> list[bytes]:
        texts: list[bytes] = []
        place = 0
        for _ in range(min(self.count, len(data) // _LENGTH_BYTES)):
            end = place + _LENGTH_BYTES
            end += int.from_bytes(data[place:end], "little")
            texts.append(data[place + _LENGTH_BYTES : end])
            place = end
        if place != len(data) or len(texts) != self.count:
            raise InvalidArgument(
                f"{self} has {len(data)} bytes, which are not {self.count} texts with their lengths before them"
            )
        return texts


def _kinds(datatype: str) -> tuple[set[type], str]:
    """Returns the types of Python that a data type takes, and their name."""
    if datatype == BYTES:
        return {str}, "texts"
    if datatype == BOOL:
        return {bool}, "true and false"
    return ({int, float}, "numbers") if datatype.startswith("FP") else ({int}, "whole numbers")


def shown(value: object) -> str:
    """Returns a value of a request as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
