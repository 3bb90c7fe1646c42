"""Lists, several labels, weights and groups in files and frames: their samples, and the mistakes that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import esd
from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.data.schema import IdList, Schema
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import in_table
from tests.support.event_tables import LISTED, LISTS, samples, write


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
        np.array([[1, 2, 1, 2, 1], [1, 0, 1, 0, 1], [1, 0, 1, 1, 1], [1, 3, 1, 0, 1]], np.uint32),
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
        (Schema("clicked", ("seen",)), r"column 'seen' is of type list<.*: give its max \(esd.IdList\)"),
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
