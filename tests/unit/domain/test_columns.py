"""Samples are matched to a job by the names of their columns: put in order, or refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.columns import SampleColumns, changed_rules
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table, table_of

USER, ITEM = Feature("user"), Feature("item")
SEEN = Feature("seen", pooling=Pooling.MEAN, max_length=3)
COLUMNS = SampleColumns((USER, ITEM), ("clicked", "bought"), ("age", "ln(1 + price)"), (("label", "0 or 1"),))


def batch(columns: SampleColumns, lengths: list[list[int]] | None = None) -> SampleBatch:
    """Two samples; each value says which column and which sample it is of."""
    features = [each.name for each in columns.features]
    counts = lengths or [[1] * len(features)] * 2
    ids = [
        in_table(np.array([1000 * ord(name[0]) + 100 * row + at], np.uint64), columns.features[position].table)[0]
        for row in range(2)
        for position, name in enumerate(features)
        for at in range(counts[row][position])
    ]
    dense = [[10 * row + ord(name[0]) for name in columns.dense] for row in range(2)]
    labels = [[10 * row + ord(name[0]) for name in columns.labels] for row in range(2)]
    return SampleBatch(
        np.array(ids, np.uint64),
        np.array(dense, np.float32).reshape(2, -1),
        np.array(labels, np.float32),
        None if lengths is None else np.array(lengths, np.uint32),
        columns=columns,
    )


def assert_same(one: SampleBatch, other: SampleBatch) -> None:
    for name in ("ids", "dense", "labels", "lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name) is None or getattr(one, name).flags.c_contiguous
    assert one.columns == other.columns


def test_columns_in_another_order_are_put_in_the_order_of_the_job() -> None:
    shuffled = replace(COLUMNS, features=(ITEM, USER), labels=("bought", "clicked"), dense=COLUMNS.dense[::-1])
    assert_same(batch(shuffled).arranged(COLUMNS), batch(COLUMNS))


def test_lists_keep_their_values_in_order() -> None:
    wanted = replace(COLUMNS, features=(USER, SEEN, ITEM))
    shuffled = replace(COLUMNS, features=(SEEN, ITEM, USER))
    moved = batch(shuffled, [[3, 1, 1], [0, 1, 1]]).arranged(wanted)
    assert_same(moved, batch(wanted, [[1, 3, 1], [1, 0, 1]]))


def test_ids_change_their_tables_number_with_the_order_of_tables() -> None:
    """Tables are numbered by the features that name them first, so another order of features numbers them anew."""
    wanted = replace(COLUMNS, features=(replace(USER, table=0, key="u"), replace(ITEM, table=1, key="i")))
    found = replace(COLUMNS, features=(replace(ITEM, table=0, key="i"), replace(USER, table=1, key="u")))
    moved = batch(found).arranged(wanted)
    assert_same(moved, batch(wanted))
    assert table_of(moved.ids).tolist() == [0, 1, 0, 1]


def test_parts_and_joined_batches_keep_their_names() -> None:
    named = batch(COLUMNS)
    assert named[:1].columns is COLUMNS
    assert SampleBatch.concatenate([named, named]).columns == COLUMNS
    assert SampleBatch.concatenate([named, replace(named, columns=None)]).columns is None


def test_samples_without_names_stay_as_they_are() -> None:
    unnamed = replace(batch(COLUMNS), columns=None)
    assert unnamed.arranged(COLUMNS) is unnamed
    by_position = batch(replace(COLUMNS, dense=("x", "y")))
    np.testing.assert_array_equal(by_position.arranged(replace(COLUMNS, dense=())).dense, by_position.dense)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"features": (USER, Feature("device"))}, "features of the samples lack 'item' and have 'device'"),
        ({"features": (USER,)}, "features of the samples lack 'item'"),
        ({"features": (USER, ITEM, Feature("day"))}, "features of the samples have 'day'"),
        ({"dense": ("age", "price")}, r"dense features of the samples lack 'ln\(1 \+ price\)' and have 'price'"),
        ({"dense": ("age",)}, r"dense features of the samples lack 'ln\(1 \+ price\)'"),
        ({"labels": ("clicked",)}, "labels of the samples lack 'bought'"),
        ({"features": (USER, replace(ITEM, key="items"))}, "'item' of the samples has a hash key 'items'"),
        ({"features": (USER, replace(ITEM, pooling=Pooling.SUM))}, "'item' of the samples has pooling 'sum'"),
        ({"rules": (("label", "1 from 4 on"),)}, "label is 1 from 4 on in the schema of the samples"),
        ({"rules": (("label", "0 or 1"), ("weight", "w"))}, "weight is w in the schema of the samples"),
    ],
)
def test_columns_of_another_meaning_are_refused_by_name(other: dict, message: str) -> None:
    found = replace(COLUMNS, **other)
    with pytest.raises(InvalidArgument, match=message):
        batch(found).arranged(COLUMNS)


def test_tables_that_features_share_in_another_way_are_refused() -> None:
    wanted = replace(COLUMNS, features=(USER, replace(ITEM, table=1), replace(SEEN, table=1)))
    found = replace(COLUMNS, features=(USER, replace(ITEM, table=1), replace(SEEN, table=2)))
    with pytest.raises(InvalidArgument, match="share tables in another way"):
        batch(found, [[1, 1, 1]] * 2).arranged(wanted)


def test_scores_need_no_labels_but_the_same_stand_ins_for_absent_values() -> None:
    to_score = replace(COLUMNS, labels=("anything",), rules=(("label", "1 from 4 on"), ("missing age", "30")))
    batch(to_score).arranged(COLUMNS, labelled=False)
    trained = replace(COLUMNS, rules=(("label", "0 or 1"), ("missing age", "35"), ("weight", "w")))
    with pytest.raises(InvalidArgument, match="missing age is 30 in the schema of the samples, the model was trained"):
        batch(to_score).arranged(trained, labelled=False)


def test_changed_rules_are_sentences() -> None:
    assert changed_rules((("label", "0 or 1"), ("missing age", "3")), (("label", "0 or 1"), ("weight", "w"))) == [
        "missing age was 3 and is now not given",
        "weight was not given and is now w",
    ]
