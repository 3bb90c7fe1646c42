"""The sample of distinct ids: counts against exact ones over seven orders of size, and the last iteration of an id."""

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.native.text import IdSample

MOST = 32_768  # sampled ids of a table
SEEDS = (1, 2, 3)


def estimate(sample: IdSample, since: int = 0, tables: int = 1) -> NDArray[np.float64]:
    return sample.counts(np.full(tables, since, np.uint64)) / sample.shares


def drawn(seed: int, count: int) -> NDArray[np.uint64]:
    """`count` distinct ids: half of them one after the other, half from all over the 64 bits."""
    numbers = np.arange(count, dtype=np.uint64) + np.uint64(seed << 40)
    numbers[count // 2 :] *= np.uint64(0x9E3779B97F4A7C15)  # odd, so distinct numbers stay distinct
    return numbers


@pytest.mark.parametrize("size", [0, 1, 10, 100, 1000, 10_000, MOST])
def test_small_numbers_are_exact_however_often_an_id_comes(size: int) -> None:
    sample, ids = IdSample(1), drawn(1, size)
    for iteration in range(3):
        sample.add(ids[::-1].copy() if iteration else ids, iteration)
    assert sample.shares.tolist() == [1.0]
    assert estimate(sample).tolist() == [len(ids)]


@pytest.mark.parametrize("size", [MOST + 1, 100_000, 1_000_000, 10_000_000])
def test_the_error_stays_below_three_standard_errors(size: int) -> None:
    """The standard error is one over the root of the sampled ids, of which there are 16,384 at least."""
    errors = []
    for seed in SEEDS if size < 10_000_000 else SEEDS[:1]:
        sample, ids = IdSample(1), drawn(seed, size)
        for part in np.array_split(ids, 7):
            sample.add(part, 0)
            sample.add(part[::2].copy(), 0)  # repeated ids count once
        assert 0.45 * MOST < sample.counts(np.zeros(1, np.uint64))[0] <= MOST
        errors.append(float(estimate(sample)[0]) / len(ids) - 1)
    assert np.abs(errors).max() < 3 / np.sqrt(MOST / 2)
    assert abs(np.mean(errors)) < 3 / np.sqrt(MOST / 2 * len(errors))


def test_the_sample_depends_on_the_ids_alone_not_on_their_order() -> None:
    ids = drawn(5, 200_000)
    samples = [IdSample(1), IdSample(1)]
    samples[0].add(ids, 0)
    for part in np.array_split(np.random.default_rng(0).permutation(ids), 11):
        samples[1].add(part, 0)
    assert estimate(samples[0]).tolist() == estimate(samples[1]).tolist()


@pytest.mark.parametrize("size", [5000, 400_000])
def test_it_knows_which_ids_came_since_an_iteration(size: int) -> None:
    """A tenth of the ids comes in each iteration, and the first tenth once more, at the end."""
    sample, ids = IdSample(1), drawn(9, size)
    parts = np.array_split(ids, 10)
    for iteration, part in enumerate(parts):
        sample.add(part, iteration)
    sample.add(parts[0], 10)
    for since, expected in ((0, 1.0), (1, 1.0), (2, 0.9), (9, 0.2), (10, 0.1), (11, 0.0)):
        assert estimate(sample, since)[0] == pytest.approx(expected * len(ids), rel=0.05), since


def test_tables_are_counted_apart_by_the_top_bits_of_ids() -> None:
    sample = IdSample(3)
    ids = np.concatenate([np.arange(size, dtype=np.uint64) | np.uint64(table << 56) for table, size in
                          enumerate((7, 0, 100_000))])  # fmt: skip
    sample.add(np.random.default_rng(0).permutation(ids), 4)
    counted = estimate(sample, tables=3)
    assert counted[:2].tolist() == [7, 0]
    assert counted[2] == pytest.approx(100_000, rel=0.03)
    assert sample.counts(np.array([5, 0, 4], np.uint64)).tolist() == [0, 0, counted[2] * sample.shares[2]]
    with pytest.raises(ValueError, match="an id is of table 3"):
        sample.add(np.array([3 << 56], np.uint64), 0)
    assert IdSample(1).counts(np.zeros(1, np.uint64)).tolist() == [0]
    with pytest.raises(ValueError, match="an iteration for each table"):
        sample.counts(np.zeros(2, np.uint64))
    with pytest.raises(ValueError, match="1 to 256 tables"):
        IdSample(257)


def test_a_job_with_one_table_has_ids_of_all_64_bits() -> None:
    sample = IdSample(1)
    sample.add(np.array([0, 2**64 - 1, 3 << 56, 0], np.uint64), 0)
    assert estimate(sample).tolist() == [3]
