"""Reading one row with `esd.read` takes milliseconds: a server that scores requests calls it for each."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

import esd

_IDS = tuple(f"c{number}" for number in range(12))
_FLOATS = tuple(f"x{number}" for number in range(4))
_LIMIT_SECONDS = 0.003  # of processor time; 0.075 when every call checked the schema 48 times


def test_one_row_takes_three_milliseconds_at_most(tmp_path: Path) -> None:
    lists = tuple(esd.IdList(name, max=20) for name in ("seen", "bought"))
    schema = esd.Schema("clicked", (*_IDS, *lists), dense=_FLOATS)
    row = {name: ["a"] for name in _IDS} | {each.column: [["a", "b"]] for each in lists}
    frame = pa.table(row | {name: [1.0] for name in _FLOATS})
    file = tmp_path / "schema.toml"
    names = ", ".join(f'"{name}"' for name in _IDS)
    listed = ", ".join(f'{{ column = "{each.column}", max = 20 }}' for each in lists)
    file.write_text(f'label = "clicked"\nids = [{names}, {listed}]\ndense = {list(_FLOATS)}\n')
    for described in (schema, file):
        assert min(_seconds(frame, described) for _ in range(20)) <= _LIMIT_SECONDS


def _seconds(frame: pa.Table, schema: esd.Schema | Path) -> float:
    begun = time.process_time()
    (batch,) = esd.read(frame, schema, labelled=False)
    seconds = time.process_time() - begun
    assert len(batch) == 1
    return seconds
