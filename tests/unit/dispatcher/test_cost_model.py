import numpy as np
import pytest

from dispatcher.core.cost_model import CostModel, Operations
from services.domain.errors import InvalidArgument


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
    counts = operations([3, 1], [2, 0], [1, 0])
    assert counts.total.tolist() == [6, 1]
    assert model.link_seconds(counts).tolist() == pytest.approx([6 * 1, 1 * 10])


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
