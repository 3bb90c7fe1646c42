"""The file of a schema. `esd data inspect` proposes one.

label = "rating"                   # 0 and 1, or true and false; ["clicked", "bought"] are two labels
positive-from = 4                  # any number is 1 from here on, 0 below; label-range = [0, 10]: it stays as it is
# positive = ["like", "love"]      # instead, where labels are texts: these are 1, all others 0
# decimal = ","                    # where numbers in CSV files are written 2,50
ids = [
"user",                        # texts, whole numbers, dates: one embedding row per distinct value
{ column = "item", table = "item" },
{ column = "history", table = "item", max = 32, pool = "mean", longer = "cut" },  # a list
]
crosses = [["user", "item"]]       # a field of its own for each pair
dense = ["price", "age"]           # numbers, as they are
log = ["price"]                    # of these ln(1 + x), and 0 below 0
weight = "importance"              # the factor of a sample's loss
group = "user"                     # for metrics by group
time = "at"                        # when it happened: --holdout 1d holds out the last day

[tables.item]                      # of ids that name it; the options decide the rest
dim = 32

[missing]                          # stand-ins for absent values; without an entry they are refused
item = ""
age = 35
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from esd.data.schema import Id, IdList, Schema, TableOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.documents import read_toml, suggestion

_LONGEST_NAME = 48  # that of a table, which is made of it, may go on


def read_schema(path: Path) -> Schema:
    """Reads a schema from its file.

    Raises:
        InvalidArgument: the file cannot be read, has an unknown key, or a value of the wrong kind.
    """
    document = read_toml(path, f"schema {path}")
    try:
        return _schema(document)
    except InvalidArgument as error:
        raise InvalidArgument(f"schema {path}: {error}") from None


def name_of(path: Path) -> str:
    """Returns the name of the data of a schema's file: the file's, in letters that a table's name may have."""
    return re.sub("[^a-z0-9_]+", "-", path.stem.lower()).strip("-")[:_LONGEST_NAME] or "files"


def _schema(document: dict[str, Any]) -> Schema:
    known = {each.name.replace("_", "-"): each.name for each in fields(Schema)}
    _check_keys(document, known)
    for key in ("label", "ids"):
        if key not in document:
            raise InvalidArgument(f"the key {key!r} is missing")
    values = {known[key]: value for key, value in document.items()}
    label = values["label"]
    values["label"] = label if isinstance(label, str) else _names(label, "label")
    ids = values["ids"]
    if not isinstance(ids, list):
        raise InvalidArgument(f"ids is {ids!r}, it must be a list of columns")
    values["ids"] = tuple(_id(each) for each in ids)
    for key in ("dense", "log", "positive"):
        values[key] = _names(values.get(key, []), key)
    crosses = values.get("crosses", [])
    if not isinstance(crosses, list):
        raise InvalidArgument(f"crosses is {crosses!r}, it must be a list of lists of columns")
    values["crosses"] = tuple(_names(cross, "a cross") for cross in crosses)
    for key in ("weight", "group", "time", "decimal", "time_unit"):
        if not isinstance(values.get(key, ""), str):
            special = {"decimal": "'.' or ','", "time_unit": "s, ms, us or ns"}
            what = special.get(key, "the name of a column")
            raise InvalidArgument(f"{key.replace('_', '-')} is {values[key]!r}, it must be {what}")
    _check_labels(values)
    missing = values.get("missing", {})
    if not isinstance(missing, dict) or not all(isinstance(value, str | int | float) for value in missing.values()):
        raise InvalidArgument(f"missing is {missing!r}, it must give a text or a number for each column it names")
    tables = values.get("tables", {})
    if not isinstance(tables, dict):
        raise InvalidArgument(f"tables is {tables!r}, it must have a part for each table")
    values["tables"] = {name: _made(TableOptions, table, f"table {name!r}") for name, table in tables.items()}
    return Schema(**values)


def _check_labels(values: dict[str, Any]) -> None:
    if not _is_number(values.get("positive_from", 0)):
        raise InvalidArgument(f"positive-from is {values['positive_from']!r}, it must be a number")
    if "label_range" in values:
        bounds = values["label_range"]
        if not isinstance(bounds, list) or len(bounds) != 2 or not all(map(_is_number, bounds)):
            raise InvalidArgument(f"label-range is {bounds!r}, it must be the least and the largest label")
        values["label_range"] = (float(bounds[0]), float(bounds[1]))


def _id(described: Any) -> str | Id | IdList:
    if isinstance(described, str):
        return described
    if not isinstance(described, dict) or not isinstance(described.get("column"), str):
        raise InvalidArgument(f"ids has {described!r}, it must be a column or {{ column = ..., max = ... }}")
    made: Id | IdList = _made(IdList if "max" in described else Id, described, f"ids: column {described['column']!r}")
    return made


def _made(kind: type[Any], described: Any, what: str) -> Any:
    """Makes one of the parts of a schema, whose values must be of the kinds that its fields say."""
    if not isinstance(described, dict):
        raise InvalidArgument(f"{what} is {described!r}, it must be keys with values")
    types = {each.name.replace("_", "-"): str(each.type) for each in fields(kind)}
    _check_keys(described, types)
    for key, value in described.items():
        number = "int" in types[key] or "float" in types[key]
        fits = _is_number(value) and ("float" in types[key] or isinstance(value, int)) if number else None
        if not (isinstance(value, str) if fits is None else fits):
            raise InvalidArgument(f"{what}: {key} is {value!r}, it must be a {'number' if number else 'text'}")
    return kind(**{key.replace("-", "_"): value for key, value in described.items()})


def _check_keys(described: dict[str, Any], known: Collection[str]) -> None:
    for key in described:
        if key not in known:
            raise InvalidArgument(f"there is no key {key!r}{suggestion(key, known)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidArgument(f"{key} is {value!r}, it must be a list of {'texts' if key == 'positive' else 'columns'}")
    return tuple(value)
