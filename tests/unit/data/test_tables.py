"""Files and frames of one's own: the samples they make, and the mistakes that are named."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import esd
from services.data import count_distinct, open_data
from services.data.hashing import derived_ids, field_key, hash_bytes
from services.data.schema import Id, IdList, Schema, TableOptions
from services.data.schema_file import read_schema
from services.data.tables import TableDataset, files
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument, NotFound
from services.domain.ids import in_table

SCHEMA = Schema(
    label="clicked",
    ids=("user", "item", "day"),
    crosses=(("user", "item"),),
    dense=("price", "age"),
    log=("price",),
    missing={"item": "", "age": 30},
)
DAYS = [dt.date(2026, 11, day) for day in (1, 1, 2, 3)]
EVENTS = pa.table(
    {
        "user": pa.array([7, -1, 7, 2**40]),
        "item": pa.array(["shoe", None, "Zürich", "shoe"]),
        "day": pa.array(DAYS),
        "price": pa.array([0.0, 19.5, -1.0, 3.0]),
        "unused": pa.array(["a", "b", "c", "d"]),
        "age": pa.array([20, None, 40, 50], pa.int32()),
        "clicked": pa.array([0, 1, 1, 0], pa.int8()),
    }
)


def write(table: pa.Table, file: Path) -> Path:
    match file.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(table, file, row_group_size=3)
        case ".arrow":
            with pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table, max_chunksize=3)
        case ".gz":
            plain = file.with_suffix("")
            pyarrow.csv.write_csv(table, plain)
            file.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        case _:
            delimiter = "\t" if file.suffix == ".tsv" else ","
            pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(delimiter=delimiter))
    return file


def samples(pattern: Path | str, schema: Schema = SCHEMA, batch_size: int = 3, **options: Any) -> SampleBatch:
    batches = list(TableDataset(str(pattern), schema, batch_size, **options))
    assert max(map(len, batches)) <= batch_size
    return SampleBatch.concatenate(batches)


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


def assert_equal(one: SampleBatch, other: SampleBatch) -> None:
    np.testing.assert_array_equal(one.by_field, other.by_field)
    np.testing.assert_array_equal(one.dense, other.dense)
    np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("name", ["e.parquet", "e.arrow", "e.csv", "e.tsv", "e.csv.gz"])
def test_every_format_makes_the_same_samples(tmp_path: Path, name: str) -> None:
    """A number has the id of its digits, and a date that of its text, so a CSV of a Parquet file is the same data."""
    assert_equal(samples(write(EVENTS, tmp_path / name)), expected())


def test_a_frame_makes_the_same_samples() -> None:
    class Frame:
        """What a frame of pandas or polars offers to others."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return EVENTS.__arrow_c_stream__(requested_schema)

    for frame in (EVENTS, Frame()):
        dataset = esd.read(frame, SCHEMA, batch_size=3)
        assert dataset.samples == len(EVENTS)
        assert_equal(SampleBatch.concatenate(list(dataset)), expected())
        assert dataset.fingerprint == esd.read(EVENTS, SCHEMA).fingerprint


def test_what_is_no_frame_is_refused() -> None:
    for source in (["a.parquet", "b.parquet"], {"user": [1, "x"]}):
        with pytest.raises(InvalidArgument, match=f"a {type(source).__name__} cannot be read as a frame"):
            esd.read(source, SCHEMA)


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


def test_a_schema_s_text_has_what_is_said_and_nothing_else() -> None:
    """Or a key that schemas get later would make other streams of those that jobs have begun."""
    assert Schema("y", ("user", esd.Id("item"))).to_json() == (
        '{"ids": [{"column": "user"}, {"column": "item"}], "label": "y"}'
    )
    texts = {
        schema.to_json()
        for schema in (
            Schema("y", ("user",)),
            Schema("y", ("user",), positive_from=0.0),
            Schema("y", ("user",), missing={"user": ""}),
            Schema("y", (esd.Id("user", table="u"),)),
        )
    }
    assert len(texts) == 4


def test_data_is_opened_and_counted_by_path_and_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "schema.toml"
    file.write_text('label = "clicked"\nids = ["user", "day"]\ncrosses = [["user", "day"]]\n')
    events = write(EVENTS, tmp_path / "e.parquet")
    dataset = open_data("e.parquet", 10, seed=0, data_dir=tmp_path, schema=file)
    assert [each.name for each in dataset.features] == ["user", "day", "user x day"]
    assert count_distinct(str(events), schema=file) == 3 + 3 + 4


def test_a_schema_file_says_all_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'label = "clicked"\nids = ["user", "item", "day"]\ncrosses = [["user", "item"]]\ndense = ["price", "age"]\n'
        'log = ["price"]\n[missing]\nitem = ""\nage = 30\n'
    )
    assert read_schema(file) == SCHEMA


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ids = ['a']", "the key 'label' is missing"),
        ("label = 'y'\nids = []", "at least one column of ids"),
        ("label = 'y'\nids = ['a', 'a']", "names column 'a' twice"),
        ("label = 'y'\nids = ['y']", "names column 'y' twice"),
        ("label = 'y'\nids = ['a']\nindices = ['b']", "there is no key 'indices'"),
        ("label = 'y'\nids = ['a']\ndenes = ['b']", "did you mean 'dense'?"),
        ("label = 'y'\nids = 'a'", "ids is 'a'"),
        ("label = 'y'\nids = ['a']\ncrosses = [['a', 'b']]", "the cross ['a', 'b']"),
        ("label = 'y'\nids = ['a']\nlog = ['a']", "log names 'a'"),
        ("label = 'y'\nids = ['a']\nmissing = {b = 1}", "missing names 'b'"),
        ("label = 'y'\nids = ['a']\ndense = ['p']\nmissing = {p = 'x'}", "missing.p is 'x'"),
        ("label = 'y'\nids = ['a']\npositive-from = 'x'", "positive-from is 'x'"),
        ("label = ", "cannot be read"),
    ],
)
def test_a_mistake_in_a_schema_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        read_schema(file)
    assert str(file) in str(refused.value)
    assert named in str(refused.value)


def replaced(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return EVENTS.set_column(EVENTS.column_names.index(name), name, pa.array(values, kind))


@pytest.mark.parametrize(
    ("events", "named"),
    [
        (EVENTS.drop_columns("item"), "has no column 'item'; its columns are user, day, price"),
        (replaced("item", [1.0, 2.0, 3.0, 4.0]), "column 'item' is of type double, ids are"),
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
            "schema is for others), found 2",
        ),
        (replaced("clicked", [0, 1, None, 0]), "label-range in the schema is for others), found None"),
    ],
)
def test_what_is_no_sample_is_refused_by_file_row_and_column(tmp_path: Path, events: pa.Table, named: str) -> None:
    file = write(events, tmp_path / "e.parquet")
    with pytest.raises(InvalidArgument) as refused:
        samples(file)
    assert str(file) in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize("name", ["2.parquet", "2.arrow", "2.csv", "2.csv.gz"])
def test_an_empty_file_is_refused_before_the_first_sample(tmp_path: Path, name: str) -> None:
    write(EVENTS, tmp_path / f"1{name[1:]}")
    empty = write(EVENTS.slice(0, 0), tmp_path / name)
    with pytest.raises(InvalidArgument, match=f"data file {empty} has no rows"):
        TableDataset(str(tmp_path), SCHEMA, 10)


def test_a_later_file_with_another_type_is_refused_before_the_first_sample(tmp_path: Path) -> None:
    write(EVENTS, tmp_path / "1.parquet")
    write(replaced("user", ["a", "b", "c", "d"]), tmp_path / "2.parquet")
    with pytest.raises(InvalidArgument, match=r"column 'user' is of another type in .*2.parquet and .*1.parquet"):
        TableDataset(str(tmp_path), SCHEMA, 10)
    write(EVENTS.slice(0, 0), tmp_path / "2.parquet")
    with pytest.raises(InvalidArgument, match=r"2.parquet has no rows"):
        samples(tmp_path)


def test_some_rows_that_are_no_samples_are_skipped_and_counted(tmp_path: Path) -> None:
    wrong = replaced("clicked", [0, 1, 7, 0]).set_column(0, "user", pa.array([1, None, 7, 2]))
    file = write(wrong, tmp_path / "e.parquet")
    dataset = TableDataset(str(file), SCHEMA, 10, skip_bad=2)
    kept = SampleBatch.concatenate(list(dataset))
    assert (len(kept), dataset.skipped) == (2, 2)
    np.testing.assert_array_equal(kept.dense, expected()[np.array([0, 3])].dense)
    with pytest.raises(InvalidArgument, match=r"row 3 .*'clicked'.*--skip-bad 1 allows no more"):
        samples(file, skip_bad=1)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("e.parquet", b"PAR1 but not really", "cannot be read"),
        ("e.arrow", b"ARROW1", "cannot be read"),
        ("e.csv", b"", "cannot be read"),
        ("e.csv.gz", gzip.compress(b"user,item\n1,2\n" * 9999)[:-30], "cannot be read"),
        ("e.csv", b"user,item,day,price,age,clicked\n1,a,b,2,3,0\n1,a,b,cheap,3,0\n", "'cheap'"),
        ("e.json", b"{}", "must end in one of"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        samples(tmp_path / name)
    assert str(tmp_path / name) in str(refused.value)
    assert named in str(refused.value)


def test_no_file_is_named(tmp_path: Path) -> None:
    for pattern in (tmp_path, tmp_path / "none.parquet", tmp_path / "*.parquet"):
        with pytest.raises(NotFound, match=str(tmp_path)):
            TableDataset(str(pattern), SCHEMA, 10)


LISTS = Schema(
    label=("clicked", "rating"),
    ids=("user", IdList("tags", max=3, pool="sum"), Id("item", table="items"), IdList("seen", 4, table="items")),
    crosses=(("user", "item"),),
    label_range=(0.0, 5.0),
    missing={"tags": "none"},
    weight="weight",
    group="user",
    tables={"items": TableOptions(dim=4, optimizer="adam")},
)
LISTED = pa.table(
    {
        "user": ["a", "b", "c", "d"],
        "tags": pa.array([["x", "y"], [], None, ["x", "x", None]], pa.list_(pa.string())),
        "item": [7, 8, 7, 9],
        "seen": pa.array([[7, 9], [], [8], None], pa.list_(pa.int64())),
        "clicked": [0, 1, 0, 1],
        "rating": [0.5, 5.0, 3.0, 0.0],
        "weight": [1.0, 0.0, 2.5, 1.0],
    }
)


def listed() -> SampleBatch:
    """Sample by sample: user, tags, item, seen, user x item; the default table is number 0, items number 1."""

    def ids(table: int, field: str, *values: str) -> list[int]:
        hashed = np.array([hash_bytes(field_key(field), value.encode()) for value in values], np.uint64)
        return in_table(hashed, table).tolist()

    def crossed(user: str, item: str) -> list[int]:
        parts = [np.array([hash_bytes(field_key(key), text.encode())], np.uint64) for key, text in
                 (("user", user), ("items", item))]  # fmt: skip
        return in_table(derived_ids("user x item", *parts), 0).tolist()

    flat = [
        *ids(0, "user", "a"), *ids(0, "tags", "x", "y"), *ids(1, "items", "7", "7", "9"), *crossed("a", "7"),
        *ids(0, "user", "b"), *ids(1, "items", "8"), *crossed("b", "8"),
        *ids(0, "user", "c"), *ids(1, "items", "7", "8"), *crossed("c", "7"),
        *ids(0, "user", "d"), *ids(0, "tags", "x", "x", "none"), *ids(1, "items", "9"), *crossed("d", "9"),
    ]  # fmt: skip
    return SampleBatch(
        np.array(flat, np.uint64),
        np.zeros((4, 0), np.float32),
        np.array([[0, 0.5], [1, 5], [0, 3], [1, 0]], np.float32),
        np.array([[1, 2, 1, 2, 1], [1, 0, 1, 0, 1], [1, 0, 1, 1, 1], [1, 3, 1, 0, 1]], np.uint16),
        np.array([1, 0, 2.5, 1], np.float32),
        np.array([hash_bytes(field_key("user"), text) for text in (b"a", b"b", b"c", b"d")], np.uint64),
    )


def assert_all_equal(one: SampleBatch, other: SampleBatch) -> None:
    for name in ("ids", "dense", "labels", "lengths", "weights", "groups"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists_labels_weights_and_groups_are_read(tmp_path: Path, kind: Any) -> None:
    table = LISTED.set_column(1, "tags", LISTED["tags"].cast(kind(pa.string())))
    for name in ("e.parquet", "e.arrow"):
        assert_all_equal(samples(write(table, tmp_path / name), LISTS), listed())
    frame = esd.read(table, LISTS, batch_size=3)
    assert_all_equal(SampleBatch.concatenate(list(frame)), listed())
    assert [(each.name, each.table, each.max_length) for each in frame.features] == [
        ("user", 0, 1), ("tags", 0, 3), ("item", 1, 1), ("seen", 1, 4), ("user x item", 0, 1),
    ]  # fmt: skip
    assert frame.labels == ("clicked", "rating")


def test_texts_are_split_where_a_list_is_said(tmp_path: Path) -> None:
    """An empty text is an empty list, and an empty part is a value."""
    texts = pa.table({"tags": ["x|y", "", "z", "x||"], "clicked": [0, 1, 0, 1]})
    schema = Schema("clicked", (IdList("tags", max=3),))
    want = [hash_bytes(field_key("tags"), text) for text in (b"x", b"y", b"z", b"x", b"", b"")]
    for name in ("t.csv", "t.parquet"):
        found = samples(write(texts, tmp_path / name), schema)
        assert found.ids.tolist() == want
        assert found.lengths is not None
        assert found.lengths.ravel().tolist() == [2, 0, 1, 3]
    (semicolons,) = esd.read(
        pa.table({"t": ["a;b"], "clicked": [1]}), Schema("clicked", (IdList("t", 2, separator=";"),))
    )
    assert len(semicolons.ids) == 2


def test_a_list_that_is_too_long_is_cut_where_the_schema_says_so() -> None:
    table = pa.table({"n": pa.array([[1, 2, 3], [4], [5, 6, 7, 8]]), "clicked": [0, 1, 0]})
    (kept,) = esd.read(table, Schema("clicked", (IdList("n", max=2, longer="cut"),)))
    assert kept.ids.tolist() == [hash_bytes(field_key("n"), text) for text in (b"1", b"2", b"4", b"5", b"6")]
    with pytest.raises(InvalidArgument, match=r"row 1: column 'n': expected at most 2 values .* found \[1, 2, 3\]"):
        list(esd.read(table, Schema("clicked", (IdList("n", max=2),))))


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (Schema("clicked", (IdList("seen", 2),)), None),
        (Schema("clicked", ("seen",)), r"column 'seen' is of type list<.*: say its max \(esd.IdList\)"),
        (Schema("clicked", (IdList("weight", 2),)), "column 'weight' is of type double, lists are of"),
        (
            Schema("clicked", (IdList("tags", 4),)),
            r"row 4: column 'tags': expected a value .* in every place of the list",
        ),
        (Schema("rating", ("user",)), "row 1: column 'rating': expected the label 0 or 1 .*, found 0.5"),
        (
            Schema("rating", ("user",), label_range=(0, 4)),
            r"row 2: column 'rating': expected a label in 0\.\.4, found 5.0",
        ),
        (Schema("clicked", ("user",), weight="item", missing={"item": 1}), None),
        (Schema("clicked", ("user",), weight="tags"), "column 'tags' is of type list<.*, the weight is a number"),
    ],
)
def test_what_is_no_list_label_or_weight_is_refused(schema: Schema, named: str | None) -> None:
    if named is None:
        assert len(list(esd.read(LISTED, schema))) == 1
        return
    with pytest.raises(InvalidArgument, match=named):
        list(esd.read(LISTED, schema))


def test_a_file_says_lists_tables_labels_weight_and_group(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        'label = ["clicked", "rating"]\nlabel-range = [0, 5]\nweight = "weight"\ngroup = "user"\n'
        'ids = ["user", { column = "tags", max = 3, pool = "sum" }, { column = "item", table = "items" },\n'
        '    { column = "seen", table = "items", max = 4 }]\ncrosses = [["user", "item"]]\n'
        '[tables.items]\ndim = 4\noptimizer = "adam"\n[missing]\ntags = "none"\n'
    )
    assert read_schema(file) == LISTS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ids = [{ max = 3 }]", "it must be a column or { column"),
        ("ids = [{ column = 'a', max = '3' }]", "max is '3', it must be a number"),
        ("ids = [{ column = 'a', max = 0 }]", "max of the list 'a' is 0"),
        ("ids = [{ column = 'a', max = 2, pol = 'sum' }]", "did you mean 'pool'?"),
        ("ids = [{ column = 'a', max = 2, pool = 'max' }]", "pool of the list 'a' is 'max', choose sum, mean, list"),
        ("ids = [{ column = 'a', max = 2, longer = 'keep' }]", "longer of the list 'a' is 'keep'"),
        ("ids = ['a']\n[tables.b]\ndim = 4", "tables has 'b', which no column of ids is of"),
        ("ids = [{ column = 'a', table = 'b' }]\n[tables.b]\ndims = 4", "did you mean 'dim'?"),
        ("ids = [{ column = 'a', table = 'b' }]\n[tables.b]\noptimizer = 'x'", "optimizer 'x' of a table is unknown"),
        ("ids = ['b', { column = 'a', max = 2 }]\ncrosses = [['a', 'b']]", "the cross ['a', 'b']"),
        ("ids = ['a']\nlabel-range = [1]", "label-range is [1]"),
        ("ids = ['a']\npositive-from = 1\nlabel-range = [0, 1]", "leave label_range out"),
        ("ids = ['a']\nweight = 'a'", "names column 'a' twice"),
    ],
)
def test_a_mistake_in_lists_and_tables_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "schema.toml"
    file.write_text("label = 'y'\n" + text)
    with pytest.raises(InvalidArgument) as refused:
        read_schema(file)
    assert named in str(refused.value)


@pytest.mark.parametrize("as_file", [False, True])
def test_samples_to_score_need_neither_labels_nor_weight_nor_group(tmp_path: Path, as_file: bool) -> None:
    (tmp_path / "s.toml").write_text(
        'label = ["clicked", "bought"]\nids = ["user", "item"]\ndense = ["price"]\nweight = "w"\ngroup = "visit"\n'
        'time = "at"\n[missing]\nw = 1\nvisit = ""\nitem = ""\n'
    )
    rows = {"user": ["a", "b"], "item": ["x", None], "price": [1.0, 2.0]}
    trained = pa.table(rows | {"clicked": [0, 1], "bought": [0, 0], "w": [1.0, 2.0], "visit": ["v", "w"], "at": [1, 2]})
    shown = pa.table(rows)
    if as_file:
        pyarrow.parquet.write_table(shown, tmp_path / "e.parquet")
    source = tmp_path / "e.parquet" if as_file else shown
    scored, complete = (
        SampleBatch.concatenate(list(dataset))
        for dataset in (
            esd.read(source, tmp_path / "s.toml", labelled=False),
            esd.read(trained, str(tmp_path / "s.toml")),
        )
    )
    assert scored.ids.tolist() == complete.ids.tolist()
    assert scored.dense.tolist() == complete.dense.tolist()
    assert (scored.labels.shape, scored.weights, scored.groups) == ((2, 2), None, None)
    with pytest.raises(InvalidArgument, match="label of sample 0 is not finite"):  # nobody trains them by mistake
        scored.check_numbers()
    with pytest.raises(InvalidArgument, match="has no column"):
        esd.read(source, tmp_path / "s.toml")
