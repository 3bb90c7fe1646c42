"""JSON Schemas of the files that people write, from the classes that check them; editors complete keys from them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


class _OfToml(GenerateJsonSchema):
    """TOML has no null, and a key is a title of itself."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """Adds the dialect."""
        return {"$schema": self.schema_dialect} | super().generate(schema, mode)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Leaves out null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leaves out the default of a key that stands for nothing."""
        described = super().default_schema(schema)
        if described.get("default", "") in (None, (), [], {}):
            del described["default"]
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Returns False: keys have descriptions."""
        return False


def json_schema(kind: Any, documented: Iterable[type]) -> dict[str, Any]:
    """Returns the JSON Schema of a kind of file.

    Args:
        kind: a class that pydantic checks.
        documented: the classes in it whose docstrings have a section `Attributes`, which describes their keys.
    """
    described = TypeAdapter(kind).json_schema(by_alias=True, schema_generator=_OfToml)
    parts = {**described.get("$defs", {}), described.get("title", ""): described}
    for part in parts.values():
        if "enum" in part:
            part.pop("description", None)  # which is for programs
    for each in documented:
        _describe(parts[each.__name__], each)
    return described


def _describe(part: dict[str, Any], kind: type) -> None:
    text = inspect.getdoc(kind) or ""
    part["description"] = " ".join(text.partition("\n\n")[0].split())
    meanings = dict(_ATTRIBUTE.findall(text.partition("Attributes:\n")[2].partition("\n\n")[0] + "\n"))
    for key, value in part["properties"].items():
        value["description"] = " ".join(meanings[key.replace("-", "_")].split())
