"""Data sets that are read several times, in an order that is a function of the seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from esd.data import open_data
from esd.data.epochs import Epochs
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

URI = "synthetic:zipf?samples=5000"


def epochs(epochs: int = 1, shuffle: int = 0, seed: int = 3, uri: str = URI, read: int = 300) -> Epochs:
    return Epochs(open_data(uri, read, seed=1), epochs=epochs, shuffle=shuffle, seed=seed, batch_size=64)


def rows(batches: Iterator[SampleBatch] | Epochs) -> np.ndarray:
    """One row per sample, with all that it consists of."""
    return np.concatenate([np.hstack([b.by_field, b.labels.astype(np.uint64)]) for b in batches])


def places(found: np.ndarray) -> np.ndarray:
    """Where each sample stands in the data set."""
    known = {row.tobytes(): at for at, row in enumerate(rows(iter(open_data(URI, 300, seed=1))))}
    return np.array([known[row.tobytes()] for row in found])


def test_without_shuffling_epochs_follow_each_other() -> None:
    once = rows(epochs())
    np.testing.assert_array_equal(rows(epochs(3)), np.concatenate([once] * 3))


@pytest.mark.parametrize("shuffle", [1, 64, 299, 1000, 10_000])
def test_every_epoch_has_every_sample_once_in_another_order(shuffle: int) -> None:
    once, found = rows(epochs()), rows(epochs(2, shuffle)).reshape(2, 5000, -1)
    for epoch in found:
        np.testing.assert_array_equal(np.sort(epoch, axis=0), np.sort(once, axis=0))
    assert shuffle < 300 or not np.array_equal(found[0], found[1])


def test_the_order_is_as_random_as_its_buffer_is_long() -> None:
    at = places(rows(epochs(1, 1000)))
    moved = np.arange(5000) - at
    assert 300 < np.abs(moved).mean() < 1000
    assert moved.min() > -1000  # no sample is there before it is read
    assert np.abs(np.corrcoef(np.arange(500), at[:500])[0, 1]) < 0.2  # within a buffer, any order


def test_the_order_is_that_of_the_seed() -> None:
    first, again, other = rows(epochs(2, 500)), rows(epochs(2, 500, read=77)), rows(epochs(2, 500, seed=4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_order_depends_on_no_library() -> None:
    """Changing it would splice the streams of jobs that go on."""
    assert places(rows(epochs(1, 5000)))[:6].tolist() == [3330, 4007, 3301, 2379, 3924, 87]


def test_the_fingerprint_names_what_decides_the_order() -> None:
    plain = open_data(URI, 300, seed=1).fingerprint
    assert epochs().fingerprint == plain
    assert epochs(3).fingerprint == f"{plain}; 3 epochs"
    assert epochs(3, 10).fingerprint == f"{plain}; 3 epochs; shuffled through 10 by seed 3"


def test_the_length_is_known_if_the_data_set_has_one() -> None:
    assert epochs(4).samples == 20_000
    endless = epochs(1, 100, uri="synthetic:zipf")
    assert endless.endless
    assert endless.samples is None
    assert len(next(iter(endless))) == 50
    with pytest.raises(InvalidArgument, match="no second epoch"):
        epochs(2, uri="synthetic:zipf")
    with pytest.raises(InvalidArgument, match="at least 1 and 0"):
        epochs(0)
