"""Numbers as times: their unit is given, or is seconds beyond doubt; nothing is guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import esd
from esd.data.schema_file import read_schema
from esd.data.tables import propose
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import write

ROWS = 2000
SECONDS = 1_600_000_000 + 600 * np.arange(ROWS, dtype=np.int64)  # of 13.9 days
LAST_DAY = 144
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def table(times: Any) -> pa.Table:
    return pa.table({"y": np.arange(ROWS) % 2, "u": np.arange(ROWS) % 5, "ts": times})


def held_out(source: Any, unit: str | None) -> int:
    dataset = esd.read(source, esd.Schema("y", ("u",), time="ts", time_unit=unit))
    return sum(len(batch) for batch in dataset.split(last="1d")[1])


@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("kind", ["int64", "float64", "csv"])
def test_a_day_is_a_day_in_every_unit(tmp_path: Path, unit: str, kind: str) -> None:
    found = table(SECONDS * PER_SECOND[unit])
    if kind == "csv":
        source: Any = write(found, tmp_path / "e.csv")
    else:
        source = found.set_column(2, "ts", found["ts"].cast(kind, safe=False))
    assert held_out(source, unit) == LAST_DAY
    if unit == "s":
        assert held_out(source, None) == LAST_DAY
        return
    with pytest.raises(InvalidArgument, match="are no seconds since 1970: give their unit in the schema, time-unit"):
        held_out(source, None)


@pytest.mark.parametrize("factor", [1, 10**2, 10**4, 10**6])
def test_dates_written_as_numbers_are_no_seconds(factor: int) -> None:
    """The hour 2026112014 would be a second of the year 2034, and a unit is no remedy for 20261120140000."""
    days = np.array([20_261_100 + 1 + row % 28 for row in range(ROWS)]) * factor
    with pytest.raises(InvalidArgument, match=r"look like dates, .*: write them as texts, 2026-11-20 or"):
        held_out(table(days), None)


def test_numbers_from_zero_on_are_seconds() -> None:
    assert held_out(table(600 * np.arange(ROWS)), None) == LAST_DAY


@pytest.mark.parametrize("unit", PER_SECOND)
def test_inspect_proposes_the_unit(tmp_path: Path, unit: str) -> None:
    file = write(table(SECONDS * PER_SECOND[unit]), tmp_path / "e.csv")
    (tmp_path / "s.toml").write_text(propose(str(file), rows=ROWS).to_toml())
    schema = read_schema(tmp_path / "s.toml")
    assert (schema.time, schema.time_unit) == ("ts", None if unit == "s" else unit)
    assert sum(len(batch) for batch in esd.read(file, schema).split(last="1d")[1]) == LAST_DAY


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('label = "y"\nids = ["u"]\ntime = "ts"\ntime-unit = "min"\n')
    with pytest.raises(InvalidArgument, match="time-unit is 'min', choose 's', 'ms', 'us' or 'ns'"):
        read_schema(tmp_path / "s.toml")
