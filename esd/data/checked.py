"""Kinds of values in a schema, which pydantic checks when a program or a file makes one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from functools import wraps
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, PlainValidator, Strict, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.mistakes import mistakes

T = TypeVar("T")


def key_of(field: str) -> str:
    """Returns the key in a file of a field: `positive-from` of `positive_from`."""
    return field.replace("_", "-")


# A file has the keys alone (validate_python(..., by_name=False)), a program both.
CONFIG = ConfigDict(extra="forbid", alias_generator=key_of, validate_by_name=True, validate_by_alias=True)


def named(what: str) -> Callable[[type[T]], type[T]]:
    """Makes a dataclass of pydantic's raise InvalidArgument, which names fields with the words ` of WHAT`."""

    def decorate(kind: type[T]) -> type[T]:
        known = [each.name for each in fields(kind)]  # type: ignore[arg-type] # a dataclass
        checked: Callable[..., None] = kind.__init__

        @wraps(checked)
        def construct(self: T, /, *values: Any, **by_name: Any) -> None:
            try:
                checked(self, **dict(zip(known, values, strict=False)), **by_name)
            except ValidationError as error:
                raise InvalidArgument("; ".join(mistakes(error, by_name, lambda _: known, f" of {what}"))) from None

        kind.__init__ = construct  # type: ignore[method-assign,assignment]
        return kind

    return decorate


class OneOf:
    """The annotation of a text that is one of several."""

    def __init__(self, values: Collection[str]) -> None:
        self._values = list(values)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """Returns the kind as pydantic describes kinds."""
        return core_schema.literal_schema(self._values)


def _number(value: Any) -> float:
    """Returns a number as it is: 4 stays 4, since a fingerprint of data has its text."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PydanticKnownError("float_type")
    return value if isinstance(value, int | float) else float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise PydanticKnownError("int_type")
    return int(value)


def _listed(value: Any) -> Any:
    """Returns a list as the tuple that a program gives."""
    if not isinstance(value, list | tuple):  # the order of a set is another one each time
        raise PydanticKnownError("tuple_type")
    return tuple(value)


def _text_or_number(value: Any) -> str | float:
    if isinstance(value, str):
        return value
    try:
        return _number(value)
    except PydanticKnownError:
        raise PydanticCustomError("text_or_number", "it must be a text or a number") from None


def _pair(value: Any) -> Any:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PydanticCustomError("pair", "it must be a list of two: the least and the largest")
    return tuple(value)


Text = Annotated[str, Strict()]
TextOrNumber = Annotated[str | float, PlainValidator(_text_or_number, json_schema_input_type=str | float)]
Number = Annotated[float, PlainValidator(_number, json_schema_input_type=float)]
WHOLE = BeforeValidator(_whole)
Whole = Annotated[int, WHOLE]
LISTED = BeforeValidator(_listed)
PAIR = BeforeValidator(_pair)
