"""Ids that carry the number of their table, and distinct ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from hypothesis.strategies import integers

from esd.services.domain.ids import distinct_values, in_table, table_of


@pytest.mark.parametrize("number", [0, 1, 15, 255])
def test_an_id_tells_its_table_and_keeps_its_value(number: int) -> None:
    values = np.array([[0, 1], [2**56 - 1, 2**64 - 1]], np.uint64)
    ids = in_table(values, number)
    assert table_of(ids).tolist() == [[number] * 2] * 2
    np.testing.assert_array_equal(ids & np.uint64(2**56 - 1), values & np.uint64(2**56 - 1))


def test_sorted_ids_are_grouped_by_table() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**64, 300, np.uint64)
    tables = rng.integers(0, 3, 300)
    ids = np.sort(np.concatenate([in_table(values[tables == number], number) for number in range(3)]))
    assert (np.diff(table_of(ids)) >= 0).all()


@given(arrays(np.uint64, array_shapes(max_dims=2, min_side=0, max_side=8), elements=integers(0, 5)))
def test_distinct_values_are_those_of_numpy(values: np.ndarray) -> None:
    np.testing.assert_array_equal(distinct_values(values), np.unique(values))
