import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.workloads import BalancedWorkloads
from services.domain.errors import InvalidArgument


def settle(balance, time_of, iterations=200):
    """Runs the controller against a model of the workers; returns the last workloads and times."""
    for _ in range(iterations):
        seconds = time_of(np.array(balance.current(), np.float64))
        balance.update(seconds)
    return np.array(balance.current()), seconds


@given(st.data())
def test_workloads_stay_within_limits_and_sum_to_the_batch(data):
    workers = data.draw(st.integers(1, 8))
    start = data.draw(st.lists(st.integers(0, 50), min_size=workers, max_size=workers).filter(any))
    least = [data.draw(st.integers(0, m)) for m in start]
    most = [data.draw(st.integers(m, 2 * m + 5)) for m in start]
    balance = BalancedWorkloads(start, least, most)
    assert balance.current() == tuple(start)
    times = st.lists(st.floats(0, 1e6), min_size=workers, max_size=workers)
    for seconds in data.draw(st.lists(times, max_size=20)):
        balance.update(np.array(seconds))
        current = balance.current()
        assert sum(current) == sum(start)
        assert all(low <= m <= high for low, m, high in zip(least, current, most, strict=True))


def test_times_even_out():
    """Workers that take 1 to 8 ms per sample end with equal times."""
    speeds = np.array([1e-3, 2e-3, 4e-3, 8e-3])
    workloads, seconds = settle(BalancedWorkloads([64] * 4, [1] * 4, [256] * 4), lambda m: speeds * m)
    assert seconds.max() / seconds.min() < 1.1
    assert workloads.tolist() == pytest.approx((256 / speeds) / (1 / speeds).sum(), abs=1.5)


def test_a_fixed_cost_does_not_upset_it():
    """Half of the time is there whatever the workload; times still even out, without swinging."""
    base = np.array([0.01, 0.05, 0.02, 0.04])
    balance = BalancedWorkloads([64] * 4, [1] * 4, [256] * 4)
    settle(balance, lambda m: base + 5e-4 * m)
    seen = {settle(balance, lambda m: base + 5e-4 * m, 1)[0].tobytes() for _ in range(50)}
    assert len(seen) <= 2
    _, seconds = settle(balance, lambda m: base + 5e-4 * m, 1)
    assert seconds.max() / seconds.min() < 1.05


@pytest.mark.parametrize("delay", [0, 1, 3, 8])
def test_late_measurements_do_not_make_it_swing(delay):
    """A running dispatcher hears of an iteration a window later; all time is computation, which follows m at once."""
    speeds = np.array([1e-3, 2e-3, 4e-3, 8e-3])
    balance = BalancedWorkloads([64] * 4, [1] * 4, [256] * 4, delay=delay)
    late = []
    for t in range(300):
        late.append(speeds * balance.current())
        if t > 120:
            assert late[-1].max() / late[-1].min() < 1.15
        if len(late) > delay:
            balance.update(late.pop(0))


def test_limits_hold_where_times_cannot_even_out():
    workloads, _ = settle(BalancedWorkloads([64] * 4, [16] * 4, [128] * 4), lambda m: np.array([1, 1, 1, 100]) * m)
    assert workloads.tolist() == [80, 80, 80, 16]


def test_a_change_of_speed_is_followed():
    balance = BalancedWorkloads([64] * 4, [1] * 4, [256] * 4)
    settle(balance, lambda m: np.ones(4) * m)
    workloads, _ = settle(balance, lambda m: np.array([1, 1, 1, 3.0]) * m, 30)
    assert workloads.tolist() == pytest.approx([76.8, 76.8, 76.8, 25.6], abs=2)


def test_no_time_measured_changes_nothing():
    balance = BalancedWorkloads([3, 5], [0, 0], [8, 8])
    balance.update(np.zeros(2))
    assert balance.current() == (3, 5)


def test_workloads_outside_their_limits_are_refused():
    with pytest.raises(InvalidArgument, match=r"workload of worker 1 is 5, its limits are 6\.\.8"):
        BalancedWorkloads([3, 5], [0, 6], [8, 8])


def test_shares_follow_what_iterations_really_got():
    balance = BalancedWorkloads([20, 20], [5, 5], [30, 35])
    for _ in range(5):
        balance.follow(np.array([4, -4]))
    assert balance.current() == (22, 18)
    for _ in range(100):
        balance.follow(np.array([4, -4]))
    assert balance.current() == (30, 10)
