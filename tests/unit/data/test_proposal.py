"""The schema that `esd data inspect` proposes: it can be read, and the files can be trained with it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from services.data.schema import IdList
from services.data.schema_file import read_schema
from services.data.tables import TableDataset, propose
from services.domain.errors import InvalidArgument

ROWS = 400
EVENTS = pa.table(
    {
        "request": [f"r{row}" for row in range(ROWS)],
        "user": [row % 7 for row in range(ROWS)],
        "shop name": ["one" if row % 10 else None for row in range(ROWS)],
        "price": [row / 4 for row in range(ROWS)],
        "age": [20.0 if row % 2 else None for row in range(ROWS)],
        "seen": [row % 3 == 0 for row in range(ROWS)],
        "tags": [["a", "b"][: row % 3] for row in range(ROWS)],
        "places": [[0.5]] * ROWS,
    }
)


def test_the_proposal_is_a_schema_that_fits_the_files(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(EVENTS, tmp_path / "e.parquet")
    proposal = propose(str(tmp_path), rows=10_000)
    text = proposal.to_toml()
    file = tmp_path / "schema.toml"
    file.write_text(text)

    schema = read_schema(file)
    assert schema.label == "seen"
    tags = IdList("tags", max=2)
    assert schema.ids == ("user", "shop name", tags)  # each row has a request of its own, so it is left out
    assert schema.dense == ("price", "age")
    assert schema.missing == {"shop name": "", "age": 20.0}
    assert sum(map(len, TableDataset(str(tmp_path / "e.parquet"), schema, 64))) == ROWS
    assert '# "request",  # 400 values' in text
    assert '"user",  # 7 values, the commonest 1% of them in 14% of the rows' in text
    assert "10.00% absent" in text
    assert "# not read: places, of type list<" in text


def test_a_text_file_and_a_named_label(tmp_path: Path) -> None:
    rated = EVENTS.select(["user", "price"]).append_column("click", pa.array([row % 5 for row in range(ROWS)]))
    pyarrow.csv.write_csv(rated, tmp_path / "e.csv")
    assert propose(str(tmp_path / "e.csv"), rows=100).label == "click"  # by its name
    named = propose(str(tmp_path / "e.csv"), rows=100, label="price")
    assert (named.label, tuple(named.ids), tuple(named.dense)) == ("price", ("user", "click"), ())
    assert named.rows == 100


def test_files_without_a_label_are_refused(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(EVENTS.select(["request", "price"]), tmp_path / "e.parquet")
    with pytest.raises(InvalidArgument, match="name it with --label"):
        propose(str(tmp_path), rows=100)
    with pytest.raises(InvalidArgument, match="'request' is no column of numbers"):
        propose(str(tmp_path), rows=100, label="request")
