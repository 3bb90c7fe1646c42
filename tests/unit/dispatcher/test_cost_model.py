import numpy as np
import pytest

from esd.dispatcher.core.cost_model import CostModel, Operations, RowSizes
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec


def operations(miss_pull, update_push, evict_push):
    return Operations(*(np.array(c, np.int64) for c in (miss_pull, update_push, evict_push)))


def test_transfer_seconds_are_row_bytes_over_bandwidth():
    model = CostModel(2048, [625e6, 62.5e6], sample_rows=26)
    assert model.transfer_seconds.tolist() == [2048 / 625e6, 2048 / 62.5e6]


@pytest.mark.parametrize(
    ("bandwidths", "expected"),
    [
        ([5, 5, 0.5, 0.5], [1, 1, 10, 10]),
        ([3, 2], [2, 3]),
        ([1], [1]),
        ([7, 7, 7], [1, 1, 1]),
        ([1.0, 1.001], [1, 1]),
        ([4, 3, 2], [3, 4, 6]),
    ],
)
def test_link_costs_use_the_smallest_scale_that_represents_the_ratios(bandwidths, expected):
    assert CostModel(4, bandwidths, sample_rows=1).link_costs.tolist() == expected


def test_link_costs_are_within_half_a_percent_for_any_links():
    rng = np.random.default_rng(0)
    for _ in range(300):
        bandwidths = 10 ** rng.uniform(3, 6, rng.integers(1, 65))
        model = CostModel(512, bandwidths, sample_rows=26)
        exact = 512 / bandwidths
        assert np.abs(model.link_costs * model.unit_seconds / exact - 1).max() <= 0.005 + 1e-9
        assert model.link_costs.dtype == np.int32


def test_a_link_takes_the_time_of_all_its_operations():
    model = CostModel(10, [10, 1], sample_rows=1)
    moved_bytes = operations([30, 10], [20, 0], [6, 0])
    assert moved_bytes.total.tolist() == [56, 10]
    assert model.link_seconds(moved_bytes).tolist() == pytest.approx([5.6, 10])


class Columns:
    """Of two workers: 5 and 1 pulls, of which 2 and 0 without state, 1 of these of an initial row; update pushes of 2
    rows and 3 gradients; evict pushes of 1 row and 4 gradients.
    """

    counts = np.array([[5, 1], [2, 0], [3, 0], [1, 0], [4, 1], [9, 9], [9, 9]])
    table_counts = np.array([[*counts[:5], [9, 9], [9, 9], [2, 0], [1, 0]]])


@pytest.mark.parametrize(
    ("kind", "row"), [(OptimizerKind.SGD, 64), (OptimizerKind.ROWWISE_ADAGRAD, 68), (OptimizerKind.ADAM, 192)]
)
def test_a_row_moves_with_its_state_and_parts_move_without_it(kind, row):
    """16 values of 4 bytes; a row's id and version have 16 bytes, a gradient's name 32."""
    sizes = RowSizes([TableSpec("t", 16, OptimizerSpec(kind), seed=0, init_scale=0.1)], numbered_ids(3))
    moved = sizes.moved_bytes(Columns)
    assert moved.miss_pull.tolist() == [3 * (row + 16) + 2 * (64 + 16), row + 16]
    assert moved.update_push.tolist() == [2 * (row + 16) + 3 * (64 + 32), 0]
    assert moved.evict_push.tolist() == [row + 16 + 4 * (64 + 32), 64 + 32]
    assert sizes.unsent_bytes(Columns).tolist() == [64, 0], "the values alone: it is asked for"
    up, gradients, down = (part.tolist() for part in sizes.carried_bytes(Columns))
    assert up == [5 * 16 + 3 * (row + 16), 16]
    assert gradients == [7 * (64 + 32), 64 + 32]
    assert down == [3 * row + 64, row]
    assert sizes.gradient_shares == ((64 + 32) / (row + 16),)
    assert sizes.value_shares == ((64 + 16) / (row + 16),)


def test_operations_add_kind_by_kind():
    total = operations([1, 2], [3, 4], [5, 6]) + operations([10, 20], [30, 40], [50, 60])
    assert total.miss_pull.tolist() == [11, 22]
    assert total.update_push.tolist() == [33, 44]
    assert total.evict_push.tolist() == [55, 66]
    assert Operations.none(2).total.tolist() == [0, 0]


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bandwidth_that_is_no_speed_is_refused(bandwidth):
    with pytest.raises(InvalidArgument, match="bandwidth of worker 1"):
        CostModel(4, [1.0, bandwidth], sample_rows=1)


def test_links_too_far_apart_for_integer_costs_are_refused():
    with pytest.raises(InvalidArgument, match="times slower"):
        CostModel(4, [1e12, 1.0], sample_rows=26)
