"""Enumerations on the wire: a value of the vocabulary has the same name in the contract, after a prefix."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

from esd.services.domain.errors import InvalidArgument

E = TypeVar("E", bound=Enum)


class EnumCodec(Generic[E]):
    """Converts one enumeration of the vocabulary to the contract's numbers, and back.

    Args:
        values: the enumeration.
        message: its counterpart in the generated code, such as `dispatcher_pb2.Criterion`.
        prefix: the prefix of every name in the generated code, such as `CRITERION_`.
        field: the field with the value, for error messages.
        unspecified: the value for 0; None if a sender must set the field.
    """

    def __init__(self, values: type[E], message: Any, prefix: str, field: str, unspecified: E | None = None) -> None:
        self._field = field
        self._numbers: dict[E, int] = {value: message.Value(prefix + value.name) for value in values}
        self._values = {number: value for value, number in self._numbers.items()}
        if unspecified is not None:
            self._values[0] = unspecified

    def encode(self, value: E) -> Any:
        """Returns the number of a value."""
        return self._numbers[value]

    def decode(self, number: int) -> E:
        """Returns the value of a number. Raises InvalidArgument with the field's name if the number is unknown."""
        value = self._values.get(number)
        if value is None:
            raise InvalidArgument(f"{self._field} is {number}, it must be one of {sorted(self._values)}")
        return value
