"""Pydantic's findings in the words of the house: the place, the value and the allowed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from esd.services.runtime.documents import suggestion

Place = tuple[str | int, ...]

_ALLOWED = {
    "bool_type": "true or false",
    "dataclass_type": "keys with values",
    "dict_type": "keys with values",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "mapping_type": "keys with values",
    "model_type": "keys with values",
    "string_type": "a text",
    "tuple_type": "a list",
}
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_LONGEST = 120  # characters of a value in a message


def mistakes(
    error: ValidationError, document: Any, keys: Callable[[Place], Iterable[str]], of: str = ""
) -> Iterator[str]:
    """Yields one line for each mistake.

    A part of a place in parentheses is the name of a form that a value may have, and is left out of messages.

    Args:
        error: raised by pydantic.
        document: the values that were checked.
        keys: returns the keys that the values at a place may have, for suggestions.
        of: the end of a place's name, such as ` of a schema`.
    """
    found = error.errors(include_url=False)
    places = {mistake["loc"][:depth] for mistake in found for depth in range(1, len(mistake["loc"]))}
    for mistake in found:
        if mistake["loc"] in places:
            continue  # a list of which an entry is wrong is said to be too short as well
        place = tuple(part for part in mistake["loc"] if not str(part).startswith("("))
        last, above = (place[-1], place[:-1]) if place else ("", ())
        where = _name(above, document) + ": " if above else ""
        if mistake["type"] == "missing" and isinstance(last, str) and last:
            yield f"{where}the key {last!r} is missing"
        elif mistake["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            yield f"{where}there is no key {last!r}{suggestion(str(last), keys(above))}"
        elif mistake["type"] == "value_error":
            yield f"{_name(place, document) or 'file'}{of}: {mistake['msg'].removeprefix('Value error, ')}"
        elif isinstance(last, int):
            yield f"{_name(above, document)}{of} has {_value(mistake['input'])}, {_allowed(mistake)}"
        else:
            yield f"{_name(place, document)}{of} is {_value(mistake['input'])}, {_allowed(mistake)}"


def _allowed(mistake: Any) -> str:
    kind, value, context = mistake["type"], mistake["input"], mistake.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return f"choose {context['expected']}"
    if kind in ("tuple_type", "list_type") and isinstance(value, str):
        return f"it must be a list: [{value!r}]"
    if kind == "string_type" and isinstance(value, int | float):
        return f"it must be a text: {str(value)!r}"
    for limit, words in _LIMITS.items():
        if limit in context:
            return f"it must be {words} {context[limit]}"
    if kind == "string_pattern_mismatch":
        return f"it must match {context['pattern']}"
    if kind in ("too_short", "string_too_short"):
        return "it must not be empty"
    return f"it must be {_ALLOWED[kind]}" if kind in _ALLOWED else str(mistake["msg"])


def _name(place: Place, document: Any) -> str:
    """Returns a place in words; an entry of a list is named by its column or name, if it has one."""
    words = []
    for part in place:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            document = None
        entry = document if isinstance(part, int) and isinstance(document, dict) else {}
        words.append(str(entry.get("column", entry.get("name", part))))
    return ".".join(words)


def _value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
