import numpy as np
import pytest

from esd.dispatcher.simulator.sizing.scars import Device, best_cache, epoch_communication, expected_distinct
from esd.services.domain.errors import InvalidArgument

ZIPF = 1.0 / np.arange(1, 2001) ** 1.1
ZIPF /= ZIPF.sum()


def test_expected_distinct_rows_are_what_sampling_finds():
    rng = np.random.default_rng(1)
    seen = [len(np.unique(rng.choice(len(ZIPF), 300, p=ZIPF))) for _ in range(300)]
    assert expected_distinct(ZIPF, 300) == pytest.approx(np.mean(seen), rel=0.01)


def test_expected_distinct_rows_of_simple_batches():
    assert expected_distinct(ZIPF, 0) == 0
    assert expected_distinct(ZIPF, 1) == pytest.approx(1)
    assert expected_distinct(np.array([1.0, 0.0, 0.5]), 2) == pytest.approx(1 + 0 + 0.75)


@pytest.mark.parametrize(("memory", "per_sample"), [(20_000, 50), (5_000, 100), (200_000, 20), (3_000, 2_900)])
def test_binary_search_finds_the_best_cache(memory, per_sample):
    device = Device(memory, per_sample, per_row=16)
    costs = [epoch_communication(ZIPF, device, c, 10**6) for c in range(len(ZIPF) + 1)]
    best = best_cache(ZIPF, device, 10**6)
    assert costs[best] <= min(costs) * (1 + 1e-9)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidArgument, match="a sample takes 100 parameters, the device has 99"):
        best_cache(ZIPF, Device(99, 100, 16), 1000)
    assert epoch_communication(ZIPF, Device(99, 100, 16), 0, 1000) == float("inf")
