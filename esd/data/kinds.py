"""Refuses values of another kind than a field's annotation, by the names of the field and of the kind."""

from __future__ import annotations

import collections.abc
from dataclasses import fields
from functools import lru_cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from esd.services.domain.errors import InvalidArgument

_WORDS = {str: ("a text", "texts"), int: ("a whole number", "whole numbers"), float: ("a number", "numbers")}


def check_kinds(made: Any, named: str) -> None:
    """Checks the fields of a dataclass. A list is taken for a tuple, and whole numbers are numbers.

    Args:
        made: the instance.
        named: the form of a field's name in messages: `{} of a table`.

    Raises:
        InvalidArgument: a field is of another kind.
    """
    hints = _hints(type(made))  # type: ignore[arg-type] # types are hashable
    for each in fields(made):
        value = getattr(made, each.name)
        if not _fits(value, hints[each.name]):
            raise InvalidArgument(f"{named.format(each.name)} is {value!r}, it must be {_words(hints[each.name])}")


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)  # which compiles the text of every annotation


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(each, parts[0]) for each in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if origin is collections.abc.Mapping:
        return isinstance(value, collections.abc.Mapping) and all(
            _fits(key, parts[0]) and _fits(each, parts[1]) for key, each in value.items()
        )
    if kind in (int, float):
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    return isinstance(value, kind)


def _words(kind: Any, *, many: bool = False) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_words(part, many=many) for part in parts)
    if origin is tuple:
        one = "tuples" if many else "a tuple"
        return f"{one} of {_words(parts[0], many=True)}" if parts[-1] is Ellipsis else f"{one} of {len(parts)} numbers"
    if origin is collections.abc.Mapping:
        return f"a mapping of {_words(parts[0], many=True)} to {_words(parts[1], many=True)}"
    if kind is NoneType:
        return "None"
    return _WORDS[kind][many] if kind in _WORDS else f"esd.{kind.__name__}"
