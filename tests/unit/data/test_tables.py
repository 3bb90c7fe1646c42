"""Files and frames of one's own: the samples they make, and the mistakes that are named."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import esd
from esd.data import count_distinct, open_data
from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.data.schema import Id, Schema
from esd.data.tables import TableDataset, files
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import DAYS, EVENTS, SCHEMA, samples, write


def expected() -> SampleBatch:
    def ids(field: str, *values: str) -> list[int]:
        return [hash_bytes(field_key(field), value.encode()) for value in values]

    users = np.array(ids("user", "7", "-1", "7", str(2**40)), np.uint64)
    items = np.array(ids("item", "shoe", "", "Zürich", "shoe"), np.uint64)
    days = np.array(ids("day", *map(str, DAYS)), np.uint64)
    crossed = derived_ids("user x item", users, items)
    dense = np.array([[0, 20], [np.log1p(19.5), 30], [0, 40], [np.log1p(3), 50]], np.float32)
    return SampleBatch.of_fields(
        np.stack([users, items, days, crossed], axis=1), dense, np.array([0, 1, 1, 0], np.float32)
    )


def arrow_stream() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, EVENTS.schema) as writer:
        writer.write_table(EVENTS)
    return sink.getvalue()


def assert_equal(one: SampleBatch, other: SampleBatch) -> None:
    np.testing.assert_array_equal(one.by_field, other.by_field)
    np.testing.assert_array_equal(one.dense, other.dense)
    np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("name", ["e.parquet", "e.arrow", "e.csv", "e.tsv", "e.csv.gz"])
def test_every_format_makes_the_same_samples(tmp_path: Path, name: str) -> None:
    """A number has the id of its digits, and a date the id of its text, so a CSV of a Parquet file is the same data."""
    assert_equal(samples(write(EVENTS, tmp_path / name)), expected())


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_header_of_a_csv_file_tells_its_delimiter(tmp_path: Path, delimiter: str, *, packed: bool) -> None:
    named = EVENTS.rename_columns(
        ["user", "item", "day", "price", "of no, use, at, all, here, too, or so", "age", "clicked"]
    )
    sink = io.BytesIO(b"")
    pyarrow.csv.write_csv(named, sink, pyarrow.csv.WriteOptions(delimiter=delimiter))
    text = b"\xef\xbb\xbf" + sink.getvalue()  # as spreadsheets begin a file
    file = tmp_path / ("e.csv.gz" if packed else "e.csv")
    file.write_bytes(gzip.compress(text) if packed else text)
    assert_equal(samples(file), expected())


def test_a_frame_makes_the_same_samples() -> None:
    class Frame:
        """The interface of a frame of pandas or polars."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return EVENTS.__arrow_c_stream__(requested_schema)

    for frame in (EVENTS, Frame()):
        dataset = esd.read(frame, SCHEMA, batch_size=3)
        assert dataset.samples == len(EVENTS)
        assert_equal(SampleBatch.concatenate(list(dataset)), expected())
        assert dataset.fingerprint == esd.read(EVENTS, SCHEMA).fingerprint


def test_a_frame_of_pandas_makes_the_same_samples_whatever_else_it_has() -> None:
    pandas = pytest.importorskip("pandas")
    frame = EVENTS.to_pandas().assign(notes=[1, "two", None, {}])  # a column that pyarrow cannot convert
    assert_equal(SampleBatch.concatenate(list(esd.read(frame, SCHEMA, batch_size=3))), expected())
    by_user = EVENTS.to_pandas().set_index("user")
    assert_equal(SampleBatch.concatenate(list(esd.read(by_user, SCHEMA))), expected())

    sparse = frame.assign(price=pandas.arrays.SparseArray([1.0, 0.0, 0.0, 2.0]))
    with pytest.raises(InvalidArgument, match=r"a DataFrame cannot be read as a frame: .*column price"):
        esd.read(sparse, SCHEMA)
    with pytest.raises(InvalidArgument, match="the frame has no column 'price'"):
        esd.read(EVENTS.to_pandas().drop(columns="price"), SCHEMA)


def test_files_without_a_schema_are_told_what_proposes_one(tmp_path: Path) -> None:
    write(EVENTS, tmp_path / "e.csv")
    with pytest.raises(InvalidArgument, match=r"need --schema: esd data inspect .* > schema\.toml proposes one"):
        open_data(str(tmp_path), 10, seed=0)


def test_what_is_no_frame_is_refused() -> None:
    for source in ([1, 2], {"user": [1, "x"]}):
        with pytest.raises(InvalidArgument, match=f"a {type(source).__name__} cannot be read as a frame"):
            esd.read(source, SCHEMA)


def test_quoted_texts_may_have_lines_wherever_a_file_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = ["one\nof two lines\n", "plain", "a\nb", ""]
    table = EVENTS.set_column(1, "item", pa.array(items))
    file = write(table, tmp_path / "e.csv")
    in_memory = SampleBatch.concatenate(list(esd.read(table, SCHEMA)))
    for block in range(64, 160, 8):  # bytes; some end within a value
        monkeypatch.setattr(files, "_CSV_BYTES", block)
        assert_equal(samples(file), in_memory)


@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())],
)
def test_texts_of_every_type_have_the_same_ids(kind: pa.DataType) -> None:
    other = EVENTS.set_column(1, "item", EVENTS["item"].cast(kind))
    assert_equal(SampleBatch.concatenate(list(esd.read(other, SCHEMA))), expected())
    sliced = SampleBatch.concatenate(list(esd.read(other.slice(2), SCHEMA)))
    assert_equal(sliced, expected()[2:])


@pytest.mark.parametrize("kind", [pa.uint64(), pa.int16(), pa.decimal128(20, 0), pa.string()])
def test_a_whole_number_has_the_id_of_its_digits_in_every_type(kind: pa.DataType) -> None:
    small = pa.table({"n": pa.array([5, 0, 300]).cast(kind), "clicked": [0, 1, 0]})
    (batch,) = esd.read(small, Schema("clicked", ("n",)))
    assert batch.by_field[:, 0].tolist() == [hash_bytes(field_key("n"), text) for text in (b"5", b"0", b"300")]


def test_the_largest_unsigned_number_keeps_its_digits() -> None:
    largest = pa.table({"n": pa.array([2**64 - 1], pa.uint64()), "clicked": [1]})
    (batch,) = esd.read(largest, Schema("clicked", ("n",)))
    assert batch.by_field[0, 0] == hash_bytes(field_key("n"), str(2**64 - 1).encode())


def test_labels_may_be_a_threshold_or_truth_values(tmp_path: Path) -> None:
    ratings = pa.table({"user": ["a", "b", "c"], "rating": [3.5, 4.0, 5.0]})
    rated = Schema("rating", ("user",), positive_from=4)
    assert SampleBatch.concatenate(list(esd.read(ratings, rated))).labels[:, 0].tolist() == [0, 1, 1]
    truths = write(pa.table({"user": ["a", "b"], "clicked": [True, False]}), tmp_path / "t.csv")
    assert samples(truths, Schema("clicked", ("user",))).labels[:, 0].tolist() == [1, 0]


def test_files_of_a_folder_or_a_pattern_follow_each_other_by_name(tmp_path: Path) -> None:
    for day in (2, 1, 3):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        write(EVENTS.slice(day), folder / "e.parquet")
    (tmp_path / "_SUCCESS").touch()
    want = SampleBatch.concatenate([expected()[day:] for day in (1, 2, 3)])
    assert_equal(samples(tmp_path), want)
    assert_equal(samples(f"{tmp_path}/day=*/*.parquet"), want)
    assert_equal(samples(f"{tmp_path}/day=[12]/*.parquet"), want[:5])


def test_batches_cross_no_piece_and_every_pass_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples(write(EVENTS, tmp_path / "e.parquet"))
    monkeypatch.setattr(files, "ROWS", 2)
    for name in ("e.parquet", "e.arrow", "e.csv"):
        dataset = TableDataset(str(write(EVENTS, tmp_path / name)), SCHEMA, 10)
        for _ in range(2):
            assert_equal(SampleBatch.concatenate(list(dataset)), whole)


def test_parquet_files_tell_how_many_samples_they_have(tmp_path: Path) -> None:
    for name in ("one.parquet", "two.parquet"):
        write(EVENTS, tmp_path / name)
    assert TableDataset(str(tmp_path), SCHEMA, 10).samples == 8
    assert TableDataset(str(tmp_path), SCHEMA, 10, skip_bad=1).samples is None  # some may be left out
    write(EVENTS, tmp_path / "three.csv")
    assert TableDataset(str(tmp_path / "three.csv"), SCHEMA, 10).samples is None


def test_the_fingerprint_is_of_the_content_and_the_schema(tmp_path: Path) -> None:
    one, moved, other = (tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet"))
    write(EVENTS, one)
    write(EVENTS, moved)
    write(EVENTS.slice(1), other)
    fingerprints = [TableDataset(str(file), SCHEMA, 10).fingerprint for file in (one, moved, other)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    plain = Schema("clicked", SCHEMA.ids, dense=SCHEMA.dense, missing=SCHEMA.missing)
    assert TableDataset(str(one), plain, 10).fingerprint != fingerprints[0]


def test_data_is_opened_and_counted_by_path_and_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "schema.toml"
    file.write_text('label = "clicked"\nids = ["user", "day"]\ncrosses = [["user", "day"]]\n')
    events = write(EVENTS, tmp_path / "e.parquet")
    dataset = open_data("e.parquet", 10, seed=0, data_dir=tmp_path, schema=file)
    assert [each.name for each in dataset.features] == ["user", "day", "user x day"]
    assert count_distinct(str(events), schema=file) == 3 + 3 + 4


def replaced(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return EVENTS.set_column(EVENTS.column_names.index(name), name, pa.array(values, kind))


@pytest.mark.parametrize(
    ("events", "named"),
    [
        (EVENTS.drop_columns("item"), "has no column 'item'; its columns are user, day, price"),
        (replaced("item", [1.0, 2.5, 3.0, 4.0]), "row 2 (row group 0): column 'item': expected a whole number"),
        (replaced("item", [["a"], [], ["b"], []]), "column 'item' is of type list<"),
        (replaced("price", ["1", "2", "3", "4"]), "column 'price' is of type string, a dense feature is a number"),
        (replaced("clicked", ["0", "1", "0", "1"]), "column 'clicked' is of type string, the label is a number"),
        (EVENTS.slice(0, 0), "has no rows"),
        (replaced("user", [1, 2, 3, None]), "row 4 (row group 1): column 'user': expected a value (missing.user"),
        (replaced("price", [1.0, None, 1.0, 1.0]), "row 2 (row group 0): column 'price': expected a value"),
        (replaced("price", [1.0, 1.0, 1e39, 1.0]), "row 3 (row group 0): column 'price': expected a number that float"),
        (replaced("price", [1.0, 1.0, 1.0, float("-inf")]), "row 4 (row group 1): column 'price'"),
        (
            replaced("clicked", [0, 1, 2, 0]),
            "row 3 (row group 0): column 'clicked': expected the label 0 or 1 (positive-from or label-range in the "
            "schema is for other numbers, positive for texts), found 2",
        ),
        (replaced("clicked", [0, 1, None, 0]), "positive for texts), found None"),
    ],
)
def test_what_is_no_sample_is_refused_by_file_row_and_column(tmp_path: Path, events: pa.Table, named: str) -> None:
    file = write(events, tmp_path / "e.parquet")
    with pytest.raises(InvalidArgument) as refused:
        samples(file)
    assert str(file) in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize("name", ["2.parquet", "2.arrow", "2.csv", "2.csv.gz"])
def test_a_part_without_rows_is_left_out_with_a_word(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark writes such parts; files without any rows at all are refused."""
    empty = write(EVENTS.slice(0, 0), tmp_path / name)
    with pytest.raises(InvalidArgument, match=f"data file {empty} has no rows"):
        TableDataset(str(tmp_path), SCHEMA, 10)
    write(EVENTS, tmp_path / f"1{name[1:]}")
    assert_equal(samples(tmp_path), expected())
    assert f"data file {empty} has no rows, and is left out" in caplog.text


def test_a_later_file_with_another_type_is_refused_before_the_first_sample(tmp_path: Path) -> None:
    write(EVENTS, tmp_path / "1.parquet")
    write(replaced("user", ["a", "b", "c", "d"]), tmp_path / "2.parquet")
    with pytest.raises(InvalidArgument, match=r"column 'user' is of another type in .*2.parquet and .*1.parquet"):
        TableDataset(str(tmp_path), SCHEMA, 10)


def test_what_arrow_cannot_make_of_a_column_is_refused_by_name() -> None:
    times = pa.array([1, 2, 3, 4], pa.timestamp("us", tz="Europe/Nowhere"))
    with pytest.raises(InvalidArgument, match=r"the frame: .*Europe/Nowhere"):
        list(esd.read(EVENTS.set_column(1, "item", times), SCHEMA))


def test_a_value_may_be_absent_in_a_dictionary_too() -> None:
    items = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["shoe", None, "Zürich"]))
    events = EVENTS.set_column(1, "item", items)
    assert_equal(SampleBatch.concatenate(list(esd.read(events, SCHEMA))), expected())
    refusing = Schema(label="clicked", ids=("item",))
    with pytest.raises(InvalidArgument, match=r"row 2: column 'item': expected a value .*found None"):
        list(esd.read(events, refusing))


def test_some_rows_that_are_no_samples_are_skipped_and_counted(tmp_path: Path) -> None:
    wrong = replaced("clicked", [0, 1, 7, 0]).set_column(0, "user", pa.array([1, None, 7, 2]))
    file = write(wrong, tmp_path / "e.parquet")
    dataset = TableDataset(str(file), SCHEMA, 10, skip_bad=2)
    kept = SampleBatch.concatenate(list(dataset))
    assert (len(kept), dataset.skipped) == (2, 2)
    np.testing.assert_array_equal(kept.dense, expected()[np.array([0, 3])].dense)
    with pytest.raises(InvalidArgument, match=r"row 3 .*'clicked'.*--skip-bad 1 allows no more"):
        samples(file, skip_bad=1)


def test_a_text_that_is_no_number_is_a_mistake_of_its_row_alone(tmp_path: Path) -> None:
    """As many as `--skip-bad` allows are left out, wherever pyarrow would have found the column's type."""
    file = tmp_path / "e.csv"
    prices = ["1", "NA", "cheap", " 2.5 ", "7,5", "+4", "true", "nan", "-1e2", "", "inf"]
    file.write_text("user;price;clicked\n" + "".join(f"u;{price};{row % 2}\n" for row, price in enumerate(prices)))
    schema = Schema("clicked", ("user",), dense=("price",), missing={"price": 9.0})
    dataset = TableDataset(str(file), schema, 100, skip_bad=3)
    (kept,) = dataset
    assert kept.dense.ravel().tolist() == [1, 9, 2.5, 4, 1, 9, -100, 9]
    assert dataset.skipped == 3  # cheap, 7,5 and inf
    with pytest.raises(InvalidArgument, match=r"e.csv: row 3: column 'price': expected a number, found 'cheap'"):
        samples(file, schema)
    expected = r"row 5: column 'price': expected a number \(decimal = ',' in the schema is for such\), found '7,5'"
    with pytest.raises(InvalidArgument, match=expected):
        samples(file, schema, skip_bad=1)
    with pytest.raises(InvalidArgument, match=r"row 2: column 'price': expected the label 0 or 1 .*found 'NA'"):
        samples(file, Schema("price", ("user",)))
    with pytest.raises(InvalidArgument, match=r"row 3: column 'price': expected the label 0 or 1 .*found 'cheap'"):
        samples(file, Schema("price", ("user",)), skip_bad=1)


@pytest.mark.parametrize("block", [64, 1 << 20])
def test_a_row_of_more_or_fewer_values_is_a_mistake_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Other rows keep their numbers in the file, wherever it is cut, and `split` leaves such rows out of the times."""
    monkeypatch.setattr(files, "_CSV_BYTES", block)
    file = tmp_path / "e.csv"
    rows = [f"{row},2026-11-{row + 1:02d},{row % 2}" for row in range(28)]
    rows[3], rows[17], rows[20] = "3", "17,2026-11-18,1,1", "20,2026-11-21,7"
    file.write_text("row,at,clicked\n" + "".join(f"{row}\n" for row in rows))
    schema = Schema("clicked", ("row",), time="at")
    with pytest.raises(InvalidArgument, match=r"e.csv: row 4: expected 3 values, found 1: '3' \(--skip-bad N skips it"):
        samples(file, schema)
    with pytest.raises(InvalidArgument, match=r"row 18: expected 3 values, found 4: .* \(--skip-bad 1 allows no more"):
        samples(file, schema, skip_bad=1)
    with pytest.raises(InvalidArgument, match=r"row 21: column 'clicked': .*found '7'"):
        samples(file, schema, skip_bad=2)
    assert len(samples(file, schema, skip_bad=3)) == 25
    trained, held_out = esd.read(file, schema, skip_bad=2).split(last="10d")
    with pytest.raises(InvalidArgument, match=r"row 21: column 'clicked'"):
        list(held_out)
    assert sum(map(len, trained)) == 16
    file.write_text("row,at\n1,2026-11-01,0\n")
    with pytest.raises(InvalidArgument, match=r"e.csv: row 1: expected 2 values, found 3: '1,2026-11-01,0'"):
        TableDataset(str(file), schema, 10)


def test_numbers_of_a_text_file_may_have_a_comma_before_the_fraction(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_text("user;price;clicked\na;2,50;1\nb;-0,25;0\nc;1.234;1\nd;3;1\n")
    schema = Schema("clicked", ("user",), dense=("price",), decimal=",")
    (kept,) = TableDataset(str(file), schema, 100, skip_bad=1)
    assert kept.dense.ravel().tolist() == [2.5, -0.25, 3]
    with pytest.raises(InvalidArgument, match=r"row 3: column 'price': expected a number, found '1.234'"):
        samples(file, schema)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.arrow"])
def test_texts_are_labels_where_the_schema_names_those_that_are_one(
    tmp_path: Path, name: str, kind: pa.DataType
) -> None:
    actions = pa.array(["view", "cart", "buy", "view"]).cast(kind)
    table = EVENTS.set_column(6, "clicked", actions)
    schema = Schema("clicked", ("user",), positive=("cart", "buy"))
    assert samples(write(table, tmp_path / name), schema).labels.ravel().tolist() == [0, 1, 1, 0]
    absent = EVENTS.set_column(6, "clicked", pa.array(["view", None, "buy", "view"]).cast(kind))
    with pytest.raises(InvalidArgument, match=r"row 2.*: column 'clicked': expected a label, found"):
        samples(write(absent, tmp_path / name), schema)
    if name != "e.csv":
        with pytest.raises(InvalidArgument, match=r"the label is a number \(positive in the schema names the texts"):
            samples(tmp_path / name, Schema("clicked", ("user",)))


def test_rows_of_a_frame_are_skipped_too(tmp_path: Path) -> None:
    wrong = replaced("clicked", [0, 1, 7, 0])
    dataset = esd.read(wrong, SCHEMA, skip_bad=1)
    np.testing.assert_array_equal(SampleBatch.concatenate(list(dataset)).ids, expected()[np.array([0, 1, 3])].ids)
    assert (dataset.skipped, dataset.samples) == (1, None)
    assert dataset.fingerprint.startswith("frame of 3 samples")


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: Schema("clicked", ids="user"), r"ids of a schema is 'user', it must be a list: \['user'\]"),
        (lambda: Schema("clicked", ("user",), dense="price"), "dense of a schema is 'price'"),
        (lambda: Schema("clicked", ("user",), positive="yes"), "positive of a schema is 'yes'"),
        (lambda: Schema("clicked", ("user", "item"), crosses=("user",)), "crosses of a schema has 'user'"),
        (lambda: Schema("clicked", ({"colunm": "user"},)), "ids.0: the key 'column' is missing"),
        (lambda: Schema("clicked", (Id("user", "u"),), tables={"u": 4}), "tables.u of a schema is 4, it must be keys"),
        (lambda: Schema("clicked", ("user",), positive=(3,)), "positive of a schema has 3, it must be a text: '3'"),
        (lambda: esd.read(["a.csv", "b.csv"], SCHEMA), r"several files must be one text with commas"),
        (lambda: esd.read(EVENTS, {"label": "clicked"}), "the schema is a dict"),
        (lambda: esd.read(EVENTS, SCHEMA, batch_size=0), "batch_size is 0, it must be at least 1"),
        (lambda: esd.read(EVENTS, SCHEMA, skip_bad=-1), "skip_bad is -1, it must be at least 0"),
        (
            lambda: list(esd.read(replaced("user", [1.0, None, 3.5, 4.0]), SCHEMA)),
            r"row 2: column 'user': expected a value \(missing.user in the schema",
        ),
    ],
)
def test_what_a_program_may_give_by_mistake_is_named(made: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        made()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("e.parquet", b"PAR1 but not really", "cannot be read"),
        ("e.arrow", b"ARROW1", "cannot be read"),
        ("e.arrow", arrow_stream(), "is an Arrow stream: write it as an Arrow file"),
        ("e.feather", b"FEA1 and more", "is Feather of version 1: write it as an Arrow file"),
        ("e.csv", b"", "cannot be read"),
        ("e.csv.gz", gzip.compress(b"user,item\n1,2\n" * 9999)[:-30], "cannot be read"),
        ("e.csv", "user,item,day,price,age,clicked\n1,a,b,2,3,0\n".encode("utf-16"), "UTF-16: convert it to UTF-8"),
        ("e.csv", "user,item\n1,a\n".encode("utf-32"), "UTF-32: convert it to UTF-8"),
        ("e.csv", b"1,b,2\n0,c,3\n", "has no column 'user'; its columns are 1, b, 2: has it no header?"),
        ("e.json", b"{}", "must end in one of"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        samples(tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize("name", ["e.csv", "e.arrow", "e.parquet"])
def test_a_file_that_is_cut_while_it_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "_CSV_BYTES", 4096)
    file = tmp_path / name
    items = pa.table({"item": pa.array(range(100_000)), "clicked": pa.array([1] * 100_000)})
    write(items, file, piece=10_000)
    batches = iter(esd.read(file, Schema(label="clicked", ids=("item",))))
    next(batches)
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(InvalidArgument, match=rf"{file} cannot be read: it had .* cut while it was read"):
        list(batches)


@pytest.mark.parametrize("name", ["e.csv", "e.arrow", "e.parquet"])
def test_a_file_that_another_takes_the_place_of_is_read_to_its_end(tmp_path: Path, name: str) -> None:
    file, shorter = tmp_path / name, tmp_path / f"shorter-{name}"
    items = pa.table({"item": pa.array(range(100_000)), "clicked": pa.array([1] * 100_000)})
    write(items, file, piece=10_000)
    write(items[:5], shorter)
    batches = iter(esd.read(file, Schema(label="clicked", ids=("item",))))
    first = next(batches)
    shorter.replace(file)
    assert len(first) + sum(map(len, batches)) == 100_000


def test_no_file_is_named(tmp_path: Path) -> None:
    for pattern in (tmp_path, tmp_path / "none.parquet", tmp_path / "*.parquet"):
        with pytest.raises(InvalidArgument, match=str(tmp_path)):
            TableDataset(str(pattern), SCHEMA, 10)
