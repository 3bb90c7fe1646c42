"""The schema that `esd data inspect` proposes: it can be read, and the files can be trained with it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from esd.data.schema import Id, IdList
from esd.data.schema_file import read_schema
from esd.data.tables import TableDataset, propose
from esd.services.domain.errors import InvalidArgument

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
    assert text.startswith("#:schema esd-data.json\n")  # from which editors complete
    assert "# not read: places, of type list<" in text


def test_a_text_file_and_a_named_label(tmp_path: Path) -> None:
    rated = EVENTS.select(["user", "price"]).append_column("click", pa.array([row % 5 for row in range(ROWS)]))
    pyarrow.csv.write_csv(rated, tmp_path / "e.csv")
    assert propose(str(tmp_path / "e.csv"), rows=100).label == "click"  # by its name
    named = propose(str(tmp_path / "e.csv"), rows=100, label="price")
    assert (named.label, tuple(named.ids), tuple(named.dense)) == ("price", ("user", "click"), ())
    assert named.rows == 100


def test_texts_of_separated_values_are_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def joined(separator: str, values: int, form: str = "{}") -> list[str]:
        return [
            separator.join(form.format(int(values * rng.random() ** 2)) for _ in range(rng.integers(0, 5)))
            for _ in range(ROWS)
        ]

    table = pa.table(
        {
            "click": [row % 2 for row in range(ROWS)],
            "genres": joined("|", 9, "genre {}"),
            "seen": joined(" ", 20, "N{}"),
            "tags": joined(";", 12),
            "place": [f"{('Bern', 'Basel')[row % 2]}, CH" for row in range(ROWS)],  # always two: one value
            "title": [("a long way home", "home", "the way")[row % 3] for row in range(ROWS)],  # words, no codes
            "amount": [f"{row % 5},{row % 7}" for row in range(ROWS)],
            "codes": [('["a"]', '["a","b"]', '["c","b"]')[row % 3] for row in range(ROWS)],  # JSON
            "key": [f"{row}|x{row}" if row % 2 else f"{row}" for row in range(ROWS)],  # its parts say more than it
        }
    )
    for name in ("e.csv", "e.parquet"):
        write = pyarrow.csv.write_csv if name == "e.csv" else pyarrow.parquet.write_table
        write(table, tmp_path / name)
        text = propose(str(tmp_path / name), rows=ROWS).to_toml()
        (tmp_path / "schema.toml").write_text(text)
        schema = read_schema(tmp_path / "schema.toml")
        lists = {each.column: (each.max, each.separator) for each in schema.id_columns if isinstance(each, IdList)}
        assert lists == {"genres": (4, "|"), "seen": (4, " "), "tags": (4, ";"), "codes": (2, ",")}
        assert [each.column for each in schema.id_columns if isinstance(each, Id)] == [
            "place",
            "title",
            "amount",
        ]
        assert '{ column = "genres", max = 4, separator = "|" },  # 9 values' in text
        assert sum(map(len, TableDataset(str(tmp_path / name), schema, 64))) == ROWS


def test_a_column_of_times_is_named(tmp_path: Path) -> None:
    start = dt.datetime(2026, 11, 20)
    for name, write in (("e.csv", pyarrow.csv.write_csv), ("e.parquet", pyarrow.parquet.write_table)):
        timed = EVENTS.select(["user", "seen"])
        timed = timed.append_column("day", pa.array([start.date()] * ROWS))
        timed = timed.append_column("at", pa.array([start + dt.timedelta(hours=row) for row in range(ROWS)]))
        write(timed, tmp_path / name)
        proposal = propose(str(tmp_path / name), rows=ROWS)
        assert (proposal.time, tuple(proposal.ids)) == ("at", ("user", "day"))
        assert 'time = "at"\n' in proposal.to_toml()
        write(timed.drop_columns("at"), tmp_path / name)
        assert propose(str(tmp_path / name), rows=ROWS).time == "day"


def test_files_without_a_label_are_refused(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(EVENTS.select(["request", "price", "tags"]), tmp_path / "e.parquet")
    with pytest.raises(InvalidArgument, match="name it with --label"):
        propose(str(tmp_path), rows=100)
    with pytest.raises(InvalidArgument, match=r"'request' has 400 different texts in .*, expected 2 to"):
        propose(str(tmp_path), rows=ROWS, label="request")
    with pytest.raises(InvalidArgument, match="'tags' is no column of numbers or texts"):
        propose(str(tmp_path), rows=100, label="tags")


def test_labels_that_are_no_truths_get_a_threshold_and_numbers_can_be_times(tmp_path: Path) -> None:
    """The proposed schema can be trained: stars become liked or not, and the log's seconds are no feature."""
    stars = [0.5, 1.0, 3.0, 4.0, 4.0, 4.5, 5.0, 5.0]
    rows = (f"{row % 3},{star},{1_500_000_000 + row}\n" for row, star in enumerate(stars))
    (tmp_path / "e.csv").write_text("user,rating,timestamp\n" + "".join(rows))
    proposed = propose(str(tmp_path / "e.csv"), 1000, "rating").to_toml()
    (tmp_path / "s.toml").write_text(proposed)
    assert "label-range = [0.5, 5] instead" in proposed
    schema = read_schema(tmp_path / "s.toml")
    assert (schema.positive_from, schema.time, schema.id_columns) == (4.5, "timestamp", (Id("user"),))
    (batch,) = TableDataset(str(tmp_path / "e.csv"), schema, 100)
    assert batch.labels[:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_column_of_truths_is_a_label_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("user,time,clicked\na,3,true\nb,4,false\nb,5,true\n")
    proposed = propose(str(tmp_path / "e.csv"), 1000).to_toml()
    assert 'label = "clicked"' in proposed
    assert 'time = "time"' in proposed
    assert "positive-from" not in proposed


def test_whole_numbers_that_some_rows_lack_are_no_obstacle(tmp_path: Path) -> None:
    """In a file of texts they are ids, whose empty text is a value, and may be named as the label."""
    (tmp_path / "e.csv").write_text("age,seen\n20,1\n,0\n30,1\n20,0\n")
    assert propose(str(tmp_path / "e.csv"), 1000).label == "seen"
    proposed = propose(str(tmp_path / "e.csv"), 1000, "age")
    assert "positive-from = 30" in proposed.to_toml()


def test_texts_that_are_labels_and_numbers_with_a_comma_are_told(tmp_path: Path) -> None:
    """Numbers whose commas may separate thousands, and numbers of a file with commas between columns, stay texts."""
    rows = [
        (f"u{row % 3}", f"{row % 7},{row % 4}5", f"{row % 9},000", "ja" if row % 3 else "nein") for row in range(60)
    ]
    content = "user;price;miles;clicked\n" + "".join(";".join(row) + "\n" for row in rows)
    (tmp_path / "e.csv").write_text(content + "u1;;1,000;ja\n")
    proposal = propose(str(tmp_path / "e.csv"), 1000)
    (tmp_path / "s.toml").write_text(proposal.to_toml())
    schema = read_schema(tmp_path / "s.toml")
    assert (schema.label, schema.positive, schema.decimal) == ("clicked", ("nein",), ",")  # the rarer one
    assert (schema.ids, schema.dense, set(schema.missing)) == (("user", "miles"), ("price",), {"price"})
    (batch,) = TableDataset(str(tmp_path / "e.csv"), schema, 100)
    assert batch.dense[:3, 0].tolist() == [np.float32(0.05), np.float32(1.15), np.float32(2.25)]
    assert batch.labels[:4, 0].tolist() == [1, 0, 0, 1]

    (tmp_path / "e.csv").write_text("user;price;width;clicked\na;1,5;2.5;1\nb;2,5;3.5;0\n")
    proposal = propose(str(tmp_path / "e.csv"), 1000)  # where some have a point, commas are something else
    assert (proposal.decimal, tuple(proposal.dense), tuple(proposal.ids)) == (".", ("width",), ("user", "price"))

    (tmp_path / "e.csv").write_text('user,price,clicked\na,"1,5",yes\nb,"2,5",no\na,"3,5",yes\n')
    proposal = propose(str(tmp_path / "e.csv"), 1000)
    assert proposal.decimal == "."
    assert 'positive = ["yes"]  # labels of 1; of 0 are "no"' in proposal.to_toml()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["$1.50", "$2"], "write numbers without marks"),
        (["10%", "12.5 %"], "write numbers without marks"),
        (["1,000", "12,500.5", "7"], "write numbers without marks"),
        (["11/20/2026 08:30", "11/21/2026"], "write times as 2026-11-20T08:30:00"),
        (["one", "$2"], ""),
        (["a1", "b2"], ""),
    ],
)
def test_texts_that_look_like_numbers_or_times_are_doubted(tmp_path: Path, values: list[str], told: str) -> None:
    table = pa.table({"x": values * 20, "y": [0, 1] * (len(values) * 10)})
    pyarrow.csv.write_csv(table, tmp_path / "e.csv")
    notes = propose(str(tmp_path / "e.csv"), rows=100).notes
    assert [told in note and f"such as {values[0]!r}" in note for note in notes] == ([True] if told else [])


def test_a_column_without_a_name_is_taken_for_the_numbers_of_rows(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(",u,y\n0,a,0\n1,b,1\n2,a,1\n")
    (note,) = propose(str(tmp_path / "e.csv"), rows=100).notes
    assert "has no name: the numbers of rows, which pandas leaves out with index=False?" in note
