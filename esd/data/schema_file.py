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
site = "shop"                      # where it arises: esd train --sites trains it by workers of its site only
time = "at"                        # when it happened: --holdout 1d holds out the last day

[tables.item]                      # of ids that name it; the options decide the rest
dim = 32

[missing]                          # stand-ins for absent values; without an entry they are refused
item = ""
age = 35
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from esd.data.checked import key_of
from esd.data.schema import IdList, Schema, TableOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.documents import parse_toml, read_document
from esd.services.runtime.mistakes import mistakes

_ADAPTER = TypeAdapter(Schema)
_LONGEST_NAME = 48  # that of a table, which is made of it, may go on


def read_schema(path: Path) -> Schema:
    """Reads a schema from its file.

    Raises:
        InvalidArgument: the file cannot be read, has an unknown key, or a value of the wrong kind.
    """
    return _schema(read_document(path, f"schema {path}"), path)


@lru_cache(maxsize=16)
def _schema(content: bytes, path: Path) -> Schema:
    """Returns the schema that a file's content describes, checked once: a server may name the file in every call."""
    document = parse_toml(content, f"schema {path}")
    try:
        return _ADAPTER.validate_python(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidArgument(f"schema {path}: " + "; ".join(mistakes(error, document, _keys))) from None
    except InvalidArgument as error:
        raise InvalidArgument(f"schema {path}: {error}") from None


def name_of(path: Path) -> str:
    """Returns the name of the data of a schema's file: the file's, in letters that a table's name may have."""
    return re.sub("[^a-z0-9_]+", "-", path.stem.lower()).strip("-")[:_LONGEST_NAME] or "files"


def _keys(place: tuple[str | int, ...]) -> tuple[str, ...]:
    """Returns the keys that the values at a place of the file may have."""
    kind: type[Any] = {"ids": IdList, "tables": TableOptions}[str(place[0])] if place else Schema
    return tuple(key_of(each.name) for each in fields(kind))
