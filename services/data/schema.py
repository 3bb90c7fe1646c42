"""A schema: which columns of somebody's table are ids, dense features and label.

It is a TOML file, which `esd data inspect` proposes:

    label = "rating"                   # 0 and 1, or true and false
    positive-from = 4                  # or any number: 1 from here on, 0 below
    ids = ["user", "item", "shop"]     # texts, whole numbers, dates: one embedding row per distinct value
    crosses = [["user", "shop"]]       # a field of its own for each pair
    dense = ["price", "age"]           # numbers, as they are
    log = ["price"]                    # of these ln(1 + x), and 0 below 0

    [missing]                          # what an absent value becomes; without an entry it is refused
    shop = ""
    age = 35
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from services.domain.documents import read_toml, suggestion
from services.domain.errors import InvalidArgument

CROSS = " x "  # between the names of a cross' parts


@dataclass(frozen=True, slots=True)
class Schema:
    """Says what the columns of a table are. Columns that it does not name are not read.

    Attributes:
        label: the column of the label.
        ids: the columns of categories.
        crosses: fields made of several of `ids`.
        dense: the columns of numbers.
        log: those of `dense` that become ln(1 + x), and 0 below 0.
        positive_from: the least label that counts as 1; None: labels are 0 and 1.
        missing: by column, what stands for an absent value.

    Raises:
        InvalidArgument: a column is named twice, or in a place that needs it elsewhere, too.
    """

    label: str
    ids: tuple[str, ...]
    crosses: tuple[tuple[str, ...], ...] = ()
    dense: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    positive_from: float | None = None
    missing: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ids:
            raise InvalidArgument("a schema needs at least one column of ids")
        for name in self.columns:
            if self.columns.count(name) > 1:
                raise InvalidArgument(f"the schema names column {name!r} twice")
        for cross in self.crosses:
            if len(cross) < 2 or not set(cross) <= set(self.ids):
                raise InvalidArgument(f"the cross {list(cross)} must name at least two of the ids {list(self.ids)}")
        self._check_numbers()

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers: the label, then the dense features."""
        return (self.label, *self.dense)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.ids, *self.numbers)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the F fields: the ids, then the crosses."""
        return (*self.ids, *(CROSS.join(cross) for cross in self.crosses))

    def to_json(self) -> str:
        """Returns one text for each schema that makes other samples."""
        return json.dumps(asdict(self), sort_keys=True)

    def _check_numbers(self) -> None:
        for name in self.log:
            if name not in self.dense:
                raise InvalidArgument(f"log names {name!r}, which is not among the dense columns {list(self.dense)}")
        for name, value in self.missing.items():
            if name not in (*self.ids, *self.dense):
                raise InvalidArgument(f"missing names {name!r}, which is neither an id nor a dense column")
            if name in self.dense and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InvalidArgument(f"missing.{name} is {value!r}, a dense column needs a number")


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


def _schema(document: dict[str, Any]) -> Schema:
    known = {each.name.replace("_", "-"): each.name for each in fields(Schema)}
    for key in document:
        if key not in known:
            raise InvalidArgument(f"there is no key {key!r}{suggestion(key, known)}")
    for key in ("label", "ids"):
        if key not in document:
            raise InvalidArgument(f"the key {key!r} is missing")
    if not isinstance(document["label"], str):
        raise InvalidArgument(f"label is {document['label']!r}, it must be the name of a column")
    values = {known[key]: value for key, value in document.items()}
    for key in ("ids", "dense", "log"):
        values[key] = _names(values.get(key, []), key)
    crosses = values.get("crosses", [])
    if not isinstance(crosses, list):
        raise InvalidArgument(f"crosses is {crosses!r}, it must be a list of lists of columns")
    values["crosses"] = tuple(_names(cross, "a cross") for cross in crosses)
    threshold = values.get("positive_from")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise InvalidArgument(f"positive-from is {threshold!r}, it must be a number")
    missing = values.get("missing", {})
    if not isinstance(missing, dict) or not all(isinstance(value, str | int | float) for value in missing.values()):
        raise InvalidArgument(f"missing is {missing!r}, it must give a text or a number for each column it names")
    return Schema(**values)


def _names(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidArgument(f"{key} is {value!r}, it must be a list of columns")
    return tuple(value)
