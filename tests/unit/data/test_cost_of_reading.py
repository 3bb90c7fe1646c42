"""Reading one row with `esd.read` checks nothing twice: a server that scores requests calls it for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import esd

_IDS = tuple(f"c{number}" for number in range(12))
_FLOATS = tuple(f"x{number}" for number in range(4))
_LISTS = ("seen", "bought")


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The schemas and columns that were made and checked; these checks took most of the 75 ms of a call once."""
    values: list[Any] = []
    check, construct = esd.Schema.__post_init__, esd.Id.__init__

    def noted_schema(made: esd.Schema) -> None:
        values.append(made)
        check(made)

    def noted_column(made: esd.Id, *arguments: Any, **named: Any) -> None:
        construct(made, *arguments, **named)
        values.append(made)

    monkeypatch.setattr(esd.Schema, "__post_init__", noted_schema)
    monkeypatch.setattr(esd.Id, "__init__", noted_column)
    return values


def test_a_schema_is_checked_when_it_is_made_and_never_again(checked: list[Any], tmp_path: Path) -> None:
    columns = (*_IDS, *(esd.IdList(name, max=20) for name in _LISTS))
    schema = esd.Schema("clicked", columns, dense=_FLOATS)
    file = tmp_path / "schema.toml"
    names = ", ".join(f'"{name}"' for name in _IDS)
    listed = ", ".join(f'{{ column = "{name}", max = 20 }}' for name in _LISTS)
    file.write_text(f'label = "clicked"\nids = [{names}, {listed}]\ndense = {list(_FLOATS)}\n')
    read_one(schema)

    checked.clear()
    read_one(schema)
    assert checked == []
    read_one(file)
    assert 2 <= len(checked) <= 2 * (1 + len(columns))  # read, and without the label
    checked.clear()
    read_one(file)
    assert checked == []  # a file that has not changed
    file.write_text(file.read_text().replace("clicked", "bought_at"))
    read_one(file)
    assert checked  # and one that has


def read_one(schema: esd.Schema | Path) -> None:
    row = {name: ["a"] for name in _IDS} | {name: [["a", "b"]] for name in _LISTS}
    frame = pa.table(row | {name: [1.0] for name in _FLOATS})
    (batch,) = esd.read(frame, schema, labelled=False)
    assert len(batch) == 1
