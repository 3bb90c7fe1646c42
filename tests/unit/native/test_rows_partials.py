"""Pending partial gradients against a dict."""

import itertools

import numpy as np
import pytest

from esd.native.rows import PartialGradients
from tests.support.stores import sets_of
from tests.support.worker_sets import listed

WAITS, COMPLETES, REPEATED, CONFLICT = range(4)


class ReferencePartials:
    """A dict of id -> ((target, contributors, step), {worker: gradient})."""

    def __init__(self):
        self.pending = {}

    def inspect(self, row, split, worker):
        known, parts = self.pending.get(row, (split, {}))
        if known != split:
            return CONFLICT
        if worker in parts:
            return REPEATED
        return COMPLETES if sum(1 << w for w in {*parts, worker}) == split[1] else WAITS

    def add(self, row, split, worker, gradient):
        self.pending.setdefault(row, (split, {}))[1].setdefault(worker, gradient.copy())

    def sum(self, row, worker, gradient):
        parts = {**self.pending.get(row, (None, {}))[1], worker: gradient}
        total, *rest = (parts[w].copy() for w in sorted(parts))
        for part in rest:
            total += part
        return total


def column(value, dtype=np.int64):
    return np.array([value], dtype)


SETS = (0b111, 0b11, 1 << 63 | 0b1, 1 << 64 | 0b1, 1 << 127 | 1 << 64 | 1 << 63)


def words_of(workers):
    """A set of workers as a column of one row: of one word if it fits, else of two."""
    return sets_of(workers, 1)


def test_equals_the_reference_under_random_contributions():
    rng = np.random.default_rng(1)
    native, reference = PartialGradients(5), ReferencePartials()
    for _ in range(3000):
        row, worker = int(rng.integers(8)), int(rng.choice([0, 1, 2, 63, 64, 127]))
        split = (int(rng.integers(1, 3)), SETS[rng.integers(len(SETS))], 4)
        gradient = rng.standard_normal((1, 5)).astype(np.float32)
        ids, columns = column(row, np.uint64), (column(split[0]), words_of(split[1]), column(split[2]))
        arrival = reference.inspect(row, split, worker)
        assert native.inspect(ids, *columns, worker).tolist() == [arrival]
        expected = reference.pending.get(row, ((0, 0, 0), {}))[0]
        target, contributors, step = native.splits(ids)
        assert (int(target[0]), *listed(contributors), int(step[0])) == expected
        if arrival in (WAITS, REPEATED):
            native.add(ids, *columns, gradient, worker)
            reference.add(row, split, worker, gradient[0])
        elif arrival == COMPLETES:
            np.testing.assert_array_equal(native.sum(ids, gradient, worker)[0], reference.sum(row, worker, gradient[0]))
            native.discard(ids)
            reference.pending.pop(row, None)
        assert len(native) == sum(len(parts) for _, parts in reference.pending.values())


def test_every_order_of_arrival_gives_the_same_bits():
    gradients = (np.random.default_rng(2).standard_normal((4, 1, 33)) * [[[1e-4]], [[1]], [[1e3]], [[7]]]).astype(
        np.float32
    )
    sums = set()
    ids, columns = column(9, np.uint64), (column(1), column(0b1111, np.uint64), column(1))
    for *first, last in itertools.permutations(range(4)):
        partials = PartialGradients(33)
        for worker in first:
            partials.add(ids, *columns, gradients[worker], worker)
        sums.add(partials.sum(ids, gradients[last], last).tobytes())
    assert len(sums) == 1


def test_memory_is_measured_and_given_back():
    partials = PartialGradients(256)
    empty = partials.memory_bytes
    ids = np.arange(1000, dtype=np.uint64)
    columns = np.ones(1000, np.int64), np.full(1000, 3, np.uint64), np.ones(1000, np.int64)
    partials.add(ids, *columns, np.zeros((1000, 256), np.float32), 0)
    assert len(partials) == 1000
    assert partials.memory_bytes - empty >= 1000 * 256 * 4
    partials.discard(ids)
    assert len(partials) == 0
    assert partials.memory_bytes - empty < 1000 * 64


def test_a_disagreeing_contribution_cannot_be_added():
    partials = PartialGradients(1)
    ids, gradient = column(1, np.uint64), np.zeros((1, 1), np.float32)
    partials.add(ids, column(1), column(3, np.uint64), column(1), gradient, 0)
    with pytest.raises(ValueError, match="disagrees"):
        partials.add(ids, column(1), column(7, np.uint64), column(1), gradient, 1)
