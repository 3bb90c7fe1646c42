"""A schema as the text of its file, which `esd.data.schema_file.read_schema` reads again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from esd.data.checked import key_of
from esd.data.schema import Id, IdList, Schema, TableOptions


def schema_text(schema: Schema) -> str:
    """Returns a schema in TOML, with the fields that differ from their defaults."""
    given = {each.name: getattr(schema, each.name) for each in fields(Schema) if each.name != "label"}
    lines = [f"label = {_value(schema.label)}"]
    lines += [f"{key_of(name)} = {_value(value)}" for name, value in given.items() if value not in (None, (), {})]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return _inline({_text(name): each for name, each in value.items()})
        case Id() | IdList() | TableOptions():
            given = {key_of(each.name): getattr(value, each.name) for each in fields(value)}
            return _inline({name: each for name, each in given.items() if each is not None})
    raise TypeError(f"a schema has no values of {type(value).__name__}")


def _inline(entries: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{name} = {_value(each)}" for name, each in entries.items()) + " }"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
