"""Negatives: a list depends on the seed, the iteration, the chunk and the place alone, wherever samples go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.negatives import MAX_IDS, Negatives
from esd.testing.job import JOB

MASK = 2**64 - 1


def mix(x: int) -> int:
    """splitmix64's finaliser, in Python's integers."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * factor & MASK
    return x ^ x >> 31


def test_a_list_is_the_documented_function() -> None:
    negatives = Negatives("negative", ids=1000, count=3, table=2, chunk=4)
    start = mix(mix(7 ^ 0x6E65676174697665) ^ 12)
    expected = [
        [(2 << 56) + mix(mix(start ^ chunk) + place * 0x9E3779B97F4A7C15 & MASK) % 1000 for place in range(3)]
        for chunk in range(2)
    ]
    assert negatives.drawn(seed=7, iteration=12, chunks=2).tolist() == expected


def test_draws_are_even_and_differ_by_seed_iteration_and_chunk() -> None:
    negatives = Negatives("negative", ids=10, count=1000)
    drawn = np.concatenate([negatives.drawn(0, iteration, 10) for iteration in range(10)])
    counts = np.bincount(drawn.reshape(-1).astype(np.int64), minlength=10)
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000)
    assert len({row.tobytes() for row in drawn}) == 100
    assert (negatives.drawn(0, 0, 1) != negatives.drawn(1, 0, 1)).any()


@pytest.mark.parametrize(("chunk", "chunks"), [(0, 1), (3, 4), (10, 1), (100, 1)])
def test_the_samples_of_a_batch_fall_into_chunks(chunk: int, chunks: int) -> None:
    negatives = Negatives("negative", ids=10, count=1, chunk=chunk)
    assert negatives.chunks(10) == chunks
    assert negatives.chunks_of(np.arange(10)).max() == chunks - 1
    assert negatives.chunks(0) == 0


def test_each_worker_gets_the_lists_of_its_chunks_once() -> None:
    negatives = Negatives("negative", ids=50, count=2, chunk=2)
    batch = SampleBatch.of_fields(
        np.arange(12, dtype=np.uint64).reshape(6, 2), np.ones((6, 1), np.float32), np.ones(6, np.float32)
    )
    batch = replace(batch, weights=np.full(6, 2, np.float32))
    made = negatives.with_lists(batch, np.array([0, 0, 2, 0, 2, 2], np.int32), seed=1, iteration=9)
    assert made.assignment.tolist() == [0, 0, 2, 0, 2, 2, 0, 0, 2, 2]
    assert made.chunks.tolist() == [0, 1, 1, 2]
    drawn = negatives.drawn(1, 9, 3)
    assert made.samples.ids_of_feature(2).tolist() == drawn[[0, 1, 1, 2]].reshape(-1).tolist()
    assert made.samples.lengths is not None
    assert made.samples.lengths.tolist() == [[1, 1, 0]] * 6 + [[0, 0, 2]] * 4
    assert made.samples.weights is not None
    assert made.samples.weights.tolist() == [2] * 6 + [0] * 4


@pytest.mark.parametrize("wrong", [{"ids": 0}, {"ids": MAX_IDS + 1}, {"count": 0}, {"chunk": -1}, {"name": ""}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        Negatives(**{"name": "negative", "ids": 5, "count": 2} | wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"negatives": Negatives("negative", 5, 2, table=9)}, "of table 9"),
        ({"negatives": Negatives(JOB.features[0].name, 5, 2)}, "both named"),
        ({"negatives": Negatives("negative", 5, 2), "admit_afters": (2,)}, "--admit-after"),
        ({"negatives": 5}, "must be of the type Negatives"),
    ],
)
def test_a_job_that_cannot_have_them_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        replace(JOB, **changes)  # type: ignore[arg-type]
