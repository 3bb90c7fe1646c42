import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.dispatcher.core.workloads import BalancedWorkloads
from esd.services.domain.errors import InvalidArgument


def balance_of(workers, batch_size, least=1, most=None, seconds=None):
    """Starts from times that say nothing, unless they are given."""
    limits = [least] * workers, [most or batch_size] * workers
    return BalancedWorkloads(batch_size, *limits, np.ones(workers) if seconds is None else np.array(seconds))


def run(balance, time_of, iterations):
    """Runs it against a model of the workers; returns the workloads and times of every iteration."""
    history = []
    for _ in range(iterations):
        workloads = balance.current()
        seconds = time_of(workloads.astype(np.float64))
        history.append((workloads, seconds))
        balance.update(seconds, workloads)
    return history


def unevenness(seconds):
    return seconds.max() / seconds.mean()


@given(st.data())
def test_workloads_stay_within_limits_and_sum_to_the_batch(data):
    workers = data.draw(st.integers(1, 8))
    least = [data.draw(st.integers(0, 20)) for _ in range(workers)]
    most = [low + data.draw(st.integers(0, 40)) for low in least]
    total = data.draw(st.integers(sum(least), sum(most)).filter(bool)) if sum(most) else 0
    if not total:
        return
    times = st.lists(st.floats(0, 1e6), min_size=workers, max_size=workers).map(np.array)
    balance = BalancedWorkloads(total, least, most, data.draw(times))

    def check(workloads):
        assert workloads.sum() == total
        assert all(low <= m <= high for low, m, high in zip(least, workloads, most, strict=True))

    check(balance.current())
    for seconds in data.draw(st.lists(times, max_size=20)):
        check(balance.refine(balance.current(), seconds, balance.most))
        balance.update(seconds, balance.current())
        check(balance.current())


@pytest.mark.parametrize("power", [0.6, 0.8, 1.0])
def test_times_are_even_after_five_iterations_and_stay_so(power):
    """Workers whose paces differ eightfold, however many rows the samples of a worker share."""
    paces = np.array([1e-3, 2e-3, 4e-3, 8e-3])
    history = run(balance_of(4, 1024), lambda m: paces * m**power, 60)
    assert unevenness(history[0][1]) > 1.5
    assert max(unevenness(seconds) for _, seconds in history[5:]) < 1.1
    assert np.ptp([workloads for workloads, _ in history[30:]], axis=0).max() <= 3  # it has come to rest


def test_a_fixed_cost_does_not_upset_it():
    base = np.array([0.01, 0.05, 0.02, 0.04])
    history = run(balance_of(4, 256), lambda m: base + 5e-4 * m, 100)
    assert max(unevenness(seconds) for _, seconds in history[40:]) < 1.05


def test_it_starts_where_expected_times_are_even():
    workloads = balance_of(4, 256, seconds=[1, 1, 10, 10]).current()
    assert workloads[0] == workloads[1] > 10 * workloads[2]
    assert unevenness(np.array([1, 1, 10, 10]) * (workloads / 64) ** 0.8) < 1.05


def test_a_refinement_brings_one_batch_nearer_to_even_times():
    balance, speeds = balance_of(4, 256), np.array([1, 1, 1, 3.0])
    workloads = balance.current()
    for _ in range(3):
        workloads = balance.refine(workloads, speeds * workloads, balance.most)
    assert workloads.tolist() == pytest.approx([76.8, 76.8, 76.8, 25.6], abs=2)
    assert balance.current().tolist() == [64] * 4  # it says nothing of the next batch


def test_links_that_are_all_faster_than_thought_leave_workloads_alone():
    """Times are negative then: the expected time of operations less the measured one."""
    balance = balance_of(4, 256)
    assert balance.refine(balance.current(), np.array([-1, -2, -0.5, -1.0]), balance.most).tolist() == [64] * 4


def test_limits_hold_where_times_cannot_even_out():
    history = run(balance_of(4, 256, least=16, most=128), lambda m: np.array([1, 1, 1, 100]) * m, 40)
    assert history[-1][0].tolist() == [80, 80, 80, 16]


def test_a_change_of_speed_is_followed():
    balance = balance_of(4, 256)
    run(balance, lambda m: m, 200)
    history = run(balance, lambda m: np.array([1, 1, 1, 3.0]) * m, 25)
    assert history[-1][0].tolist() == pytest.approx([76.8, 76.8, 76.8, 25.6], abs=2)


def test_what_is_forgotten_gives_way_at_once():
    balance = balance_of(4, 256)
    run(balance, lambda m: m, 200)
    balance.forget()
    history = run(balance, lambda m: np.array([1, 1, 1, 3.0]) * m, 4)
    assert history[-1][0].tolist() == pytest.approx([76.8, 76.8, 76.8, 25.6], abs=2)


def test_no_time_measured_and_no_samples_change_nothing():
    balance = balance_of(2, 8, least=0)
    balance.update(np.zeros(2), np.array([4, 4], np.int32))
    assert balance.current().tolist() == [4, 4]
    balance.update(np.array([1.0, 0.0]), np.array([8, 0], np.int32))
    assert balance.current()[1] > 0


@pytest.mark.parametrize(
    ("least", "most", "message"),
    [([0, 6], [8, 5], r"worker 1 has the limits 6\.\.5"), ([0, 0], [3, 4], r"sum to 0\.\.7, and a batch has 8")],
)
def test_limits_that_cannot_be_kept_are_refused(least, most, message):
    with pytest.raises(InvalidArgument, match=message):
        BalancedWorkloads(8, least, most, np.ones(2))
