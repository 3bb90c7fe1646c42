"""Writes the table of values in the chart's README and its values.schema.json. `make services` runs it.

A comment of values.yaml that begins with `--` describes the value below it. Types follow from the default values; lines
of the comment that begin with `@` add to the schema: `@schema` a part of it, `@settings` the settings of a service,
`@pod` the values of `pod`, and `@workers` the values of `workers.defaults` for each entry of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from esd.cluster.further import further_settings

ROOT = Path(__file__).resolve().parent.parent
CHART = Path("deploy/chart")
README = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
BEGIN = "<!-- written by `make services` from values.yaml; do not edit -->\n"
END = "<!-- end of what `make services` writes -->\n"

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 40}
_KEY = re.compile(r"^( *)([\w-]+):(?: |$)")


@dataclass
class Value:
    """A value of values.yaml with a description.

    Attributes:
        path: its keys from the top.
        default: its default value.
        description: the text of its comment.
        annotations: by NAME the rest of each line `@NAME ...` of its comment.
    """

    path: tuple[str, ...]
    default: Any
    description: str
    annotations: dict[str, str] = field(default_factory=dict)


def files() -> dict[Path, str]:
    """Returns the text of both files by their paths below the repository."""
    values = list(described((ROOT / CHART / "values.yaml").read_text()))
    before, _, rest = (ROOT / README).read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        README: before + BEGIN + table(values) + END + after,
        SCHEMA: json.dumps(schema(values), indent=2) + "\n",
    }


def main() -> None:
    """Writes both files."""
    for path, text in files().items():
        (ROOT / path).write_text(text)


def described(text: str) -> Iterator[Value]:
    """Returns the described values of values.yaml in their order.

    Raises:
        ValueError: a value that is no group of described values has no description.
    """
    defaults = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    known: set[tuple[str, ...]] = set()
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        key = _KEY.match(line)
        if key and tuple(path[: len(key[1]) // 2]) not in known:
            path = [*path[: len(key[1]) // 2], key[2]]
            default = _at(defaults, path)
            if comment and comment[0].startswith("--"):
                known.add(tuple(path))
                annotations = dict(each[1:].partition(" ")[::2] for each in comment if each.startswith("@"))
                words = " ".join(each for each in comment if not each.startswith("@"))
                yield Value(tuple(path), default, words.removeprefix("--").strip(), annotations)
            elif not (isinstance(default, dict) and default):
                raise ValueError(f"{'.'.join(path)} has no description: begin its comment with --")
        comment = []


def table(values: list[Value]) -> str:
    """Returns the values as a table of Markdown."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in values:
        default = json.dumps(value.default) if value.default != "" else ""
        meaning = value.description.replace("|", "\\|")
        rows.append(f"| `{'.'.join(value.path)}` | {f'`{default}`' if default else ''} | {meaning} |")
    return "\n".join(rows) + "\n"


def schema(values: list[Value]) -> dict[str, Any]:
    """Returns the JSON Schema of the values."""
    whole: dict[str, Any] = _group()
    # A chart that has this one as a part hands its own `global` on.
    whole["properties"]["global"] = {"type": "object"}
    for value in values:
        group = whole
        for key in value.path[:-1]:
            group = group["properties"].setdefault(key, _group())
        group["properties"][value.path[-1]] = _property(value, whole)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole}


def _group() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _property(value: Value, whole: dict[str, Any]) -> dict[str, Any]:
    described = {"description": value.description, **_type(value.default)}
    for name, text in value.annotations.items():
        if name == "schema":
            described |= json.loads(text)
        elif name == "settings":
            described |= {"additionalProperties": False, "properties": _settings(text)}
        elif name == "pod":
            described |= {"additionalProperties": False, "properties": whole["properties"]["pod"]["properties"]}
        elif name == "workers":
            own = whole["properties"]["workers"]["properties"]["defaults"]["properties"]
            entry = {"type": "object", "additionalProperties": False, "required": ["name"]}
            described["items"] = {**entry, "properties": {"name": _NAME, **own}}
        else:
            raise ValueError(f"{'.'.join(value.path)}: there is no @{name}")
    return described


def _type(default: Any) -> dict[str, Any]:
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    return {"type": names[type(default)]}


def _settings(service: str) -> dict[str, Any]:
    """Returns the settings of a service that values may have. The service itself checks the values."""
    return {
        name: {"description": meaning, "type": ["string", "number", "boolean"]}
        for name, meaning in further_settings(service).items()
    }


def _at(defaults: Any, path: list[str]) -> Any:
    for key in path:
        defaults = defaults[key]
    return defaults


if __name__ == "__main__":
    main()
