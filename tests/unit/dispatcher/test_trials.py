"""When workers without samples are tried."""

from __future__ import annotations

import numpy as np
import pytest

from esd.dispatcher.core.trials import Trials

SAMPLE, SUM = np.array([0.1, 0.1]), np.array([0.0, 2.0])  # seconds


@pytest.mark.parametrize(("return_sums", "cost"), [(0, 0.2), (3, 0.2 + 8 * 2.0)], ids=["nobody rests", "rests"])
def test_trials_take_a_small_share_of_the_time(return_sums: int, cost: float) -> None:
    """Worker 1 never gets samples but on trial; without rests it pays its sums all the time."""
    trials = Trials(2, return_sums)
    tried: list[int] = []
    for t in range(2000):
        needed = trials.samples(SAMPLE, SUM)
        assert needed[0] == 0
        tried += [t] * int(needed[1])
        trials.plan(np.array([8, needed[1]], np.int32))
        trials.observe(1.0)
    begins = tried[::2]
    assert [each for t in begins for each in (t, t + 1)][: len(tried)] == tried
    pause = int(32 * cost) + 2  # until more than that has passed, and the iteration behind it
    assert np.diff(begins).tolist() == [pause] * (len(begins) - 1)
    assert len(begins) > 2


def test_a_trial_lasts_until_the_worker_had_its_samples_and_goes_on_from_a_checkpoint() -> None:
    trials = Trials(2, 0)
    trials.observe(7.0)
    restored = Trials(2, 0)
    restored.load({name: array.copy() for name, array in trials.save().items()})
    for each in (trials, restored):
        for workloads in ([8, 0], [8, 0], [8, 1], [8, 1]):
            assert each.samples(SAMPLE, SUM)[1] == 1
            each.plan(np.array(workloads, np.int32))
        assert each.samples(SAMPLE, SUM)[1] == 0
