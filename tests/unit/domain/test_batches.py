"""Batches of samples against lists of lists: parts, joins and columns of features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling, check_features
from esd.services.wire.batches import decode_batch, encode_batch

FIELDS = 3
SAMPLE = st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=3), min_size=FIELDS, max_size=FIELDS)
SAMPLES = st.lists(SAMPLE, min_size=1, max_size=7)


def batch_of(samples: list[list[list[int]]], first: int = 0, **more: Any) -> SampleBatch:
    """Samples whose dense feature, label, weight and group are their number."""
    numbers = np.arange(first, first + len(samples), dtype=np.float32)
    flat = [x for sample in samples for ids in sample for x in ids]
    lengths = np.array([[len(ids) for ids in sample] for sample in samples], np.uint32).reshape(-1, FIELDS)
    columns: dict[str, Any] = {"weights": numbers, "groups": numbers.astype(np.uint64)} | more
    return SampleBatch(np.array(flat, np.uint64), numbers[:, None], numbers[:, None], lengths, **columns)


def lists_of(batch: SampleBatch) -> list[list[list[int]]]:
    ids = iter(batch.ids.tolist())
    lengths = np.ones((len(batch), FIELDS), int) if batch.lengths is None else batch.lengths
    return [[[next(ids) for _ in range(n)] for n in sample] for sample in lengths.tolist()]


@given(SAMPLES, st.data())
def test_parts_are_parts_of_every_column(samples: list[list[list[int]]], data: st.DataObject) -> None:
    batch, k = batch_of(samples), len(samples)
    start, stop = data.draw(st.integers(-k, k)), data.draw(st.integers(-k, k + 2))
    chosen = np.array(data.draw(st.lists(st.integers(0, k - 1), max_size=9)), np.int64)
    for part, rows in (
        (batch[start:stop], slice(start, stop)),
        (batch[chosen], chosen),
        (batch[::2], slice(None, None, 2)),
    ):
        numbers = np.arange(k)[rows].tolist()
        assert lists_of(part) == [samples[at] for at in numbers]
        for column in (part.dense[:, 0], part.labels[:, 0], part.weights, part.groups):
            assert column is not None
            assert column.tolist() == numbers


@given(SAMPLES, SAMPLES)
def test_joined_parts_are_the_whole(one: list[list[list[int]]], other: list[list[list[int]]]) -> None:
    joined = SampleBatch.concatenate([batch_of(one), batch_of(one)[:0], batch_of(other, len(one))])
    whole = batch_of(one + other)
    for name in ("ids", "dense", "labels", "lengths", "weights", "groups"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


def test_references_stay_with_their_samples_and_stand_alone() -> None:
    nothing = np.empty((3, 0), np.float32)
    batch = SampleBatch(np.arange(6, dtype=np.uint64), nothing, nothing, references=np.array([7, 8, 9], np.uint64))
    assert [len(batch), batch.sizes.tolist()] == [3, [24, 24, 24]]
    joined = SampleBatch.concatenate([batch[1:], batch[np.array([0])]])
    assert joined.references is not None
    assert joined.references.tolist() == [8, 9, 7]
    whole = SampleBatch.of_fields(np.zeros((1, 2), np.uint64), np.empty((1, 0), np.float32), np.ones(1, np.float32))
    with pytest.raises(InvalidArgument, match="1 of 2 batches have references"):
        SampleBatch.concatenate([batch, whole])
    with pytest.raises(InvalidArgument, match="has 0 dense features and 1 labels: these stay at their sites"):
        encode_batch(replace(whole, references=np.zeros(1, np.uint64)))


def test_a_batch_of_one_id_each_joins_one_of_lists() -> None:
    plain = SampleBatch.of_fields(
        np.array([[1, 2, 3]], np.uint64), np.zeros((1, 1), np.float32), np.ones(1, np.float32)
    )
    joined = SampleBatch.concatenate([plain[:0], plain, batch_of([[[], [7, 8], [9]]], weights=None, groups=None)])
    assert lists_of(joined) == [[[1], [2], [3]], [[], [7, 8], [9]]]
    assert joined.weights is joined.groups is None
    weighted = SampleBatch.concatenate([plain, batch_of([[[], [], []]])])
    assert weighted.weights is not None
    assert weighted.weights.tolist() == [1, 0]


@given(SAMPLES)
def test_columns_of_features(samples: list[list[list[int]]]) -> None:
    batch = batch_of(samples)
    assert batch.fields == FIELDS
    assert batch.first_ids.tolist() == [[ids[0] if ids else 0 for ids in sample] for sample in samples]
    for field in range(FIELDS):
        assert batch.ids_of_feature(field).tolist() == [x for sample in samples for x in sample[field]]
    ends = np.cumsum([sum(map(len, sample)) for sample in samples])
    assert batch.begins.tolist() == [0, *ends.tolist()]


def test_lists_must_fit_the_features() -> None:
    features = (Feature("one"), Feature("tags", 0, Pooling.MEAN, 2), Feature("seen", 0, Pooling.LIST, 3))
    batch_of([[[1], [], [2, 3, 4]]]).check_shape(features, 1, 1)
    for wrong, message in (
        ([[1], [], []], None),
        ([[], [1], [1]], "sample 0 has 0 ids of feature 'one', it may have exactly one"),
        ([[1], [1, 2, 3], []], "sample 0 has 3 ids of feature 'tags', it may have at most 2"),
    ):
        if message is None:
            batch_of([wrong]).check_shape(features, 1, 1)
            continue
        with pytest.raises(InvalidArgument, match=message):
            batch_of([wrong]).check_shape(features, 1, 1)
    with pytest.raises(InvalidArgument, match="the batch has 3 features per sample, the job has 2"):
        batch_of([[[1], [], []]]).check_shape(features[:2], 1, 1)
    with pytest.raises(InvalidArgument, match="the batch has 1 labels per sample, the job has 2"):
        batch_of([[[1], [], []]]).check_shape(features, 1, 2)


def test_lists_have_a_million_ids_each_and_a_sample_two_million() -> None:
    features = tuple(Feature(name, 0, Pooling.SUM, 2**20) for name in "abc")

    def check(*lengths: int) -> None:
        total = sum(lengths)
        batch = SampleBatch(
            np.arange(total, dtype=np.uint64),
            np.zeros((2, 0), np.float32),
            np.zeros((2, 1), np.float32),
            np.array([[0] * 3, lengths], np.uint32),
        )
        decode_batch(encode_batch(batch)).check_shape(features, 0, 1)

    check(2**20, 2**20, 0)
    with pytest.raises(InvalidArgument, match="sample 1 has 1048577 ids of feature 'c', it may have at most 1048576"):
        check(0, 0, 2**20 + 1)
    with pytest.raises(InvalidArgument, match="sample 1 has 2097153 ids of all features together, it may have 2097152"):
        check(2**20, 1, 2**20)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ((), "the job has 0 features"),
        ((Feature("a"), Feature("a")), "two features are named 'a'"),
        ((Feature("a", 1),), "feature 'a' is of table 1, the job has 1 tables"),
    ],
)
def test_features_that_cannot_be_a_jobs_are_refused(features: tuple[Feature, ...], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_features(features, tables=1)


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        ({"name": ""}, "name has 0 characters"),
        ({"name": "a", "max_length": 2}, "at most 2 ids per sample and no pooling"),
        ({"name": "a", "pooling": Pooling.SUM, "max_length": 0}, "at most 0 ids"),
        ({"name": "a", "table": -1}, "of table -1"),
    ],
)
def test_a_feature_that_cannot_be_is_refused(given_values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Feature(**given_values)
