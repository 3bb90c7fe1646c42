"""When workers without samples are tried."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.dispatcher.core.trials import Trials

SAMPLE, SUM = np.array([0.1, 0.1]), np.array([0.0, 2.0])  # seconds
NOBODY = np.zeros(2, np.bool_)
SECOND = np.array([False, True])


def plan(trials: Trials, samples: int, rests: NDArray[np.bool_] = NOBODY) -> None:
    """Plans an iteration in which worker 1 has so many samples."""
    trials.plan(np.array([8, samples], np.int32), rests)


@pytest.mark.parametrize(("return_sums", "cost"), [(0, 0.2), (3, 0.2 + 8 * 2.0)], ids=["nobody rests", "rests"])
def test_trials_take_a_small_share_of_the_time(return_sums: int, cost: float) -> None:
    """Worker 1 never gets samples but on trial; without rests it pays its sums all the time."""
    trials = Trials(2, return_sums)
    tried: list[int] = []
    for t in range(4000):
        trials.begin(SAMPLE, SUM)
        needed = trials.tried
        assert not needed[0]
        tried += [t] * int(needed[1])
        plan(trials, int(needed[1]))
        trials.observe(1.0)
    begins = tried[::2]
    assert [each for t in begins for each in (t, t + 1)][: len(tried)] == tried
    pauses = [int(relative * cost) + 1 for relative in (8, 16, 32)]  # iterations of a second, until more has passed
    assert [begins[0], *(np.diff(begins) - 2)] == [*pauses, *[pauses[-1]] * (len(begins) - 3)]
    assert len(begins) > 4


def test_a_trial_lasts_until_the_worker_had_its_samples_and_goes_on_from_a_checkpoint() -> None:
    trials = Trials(2, 0)
    plan(trials, 0)
    trials.observe(2.0)
    restored = Trials(2, 0)
    restored.load({name: array.copy() for name, array in trials.save().items()})
    for each in (trials, restored):
        for samples in (0, 0, 1, 1):
            each.begin(SAMPLE, SUM)
            assert each.tried.tolist() == [False, True]
            plan(each, samples)
        each.begin(SAMPLE, SUM)
        assert not each.tried.any()


def test_a_worker_that_rests_comes_back_by_a_trial_alone_once_the_trial_is_measured() -> None:
    trials = Trials(2, 1)
    plan(trials, 0)
    assert not trials.out.any(), "without samples, but it does not rest"
    plan(trials, 0, SECOND)
    for _ in range(2):
        assert trials.out.tolist() == [False, True]
        trials.observe(30.0)
    trials.observe(30.0)  # of an iteration that an earlier planner planned
    trials.begin(SAMPLE, SUM)
    assert (trials.tried.tolist(), trials.out.tolist()) == ([False, True], [False, False])
    plan(trials, 1)
    restored = Trials(2, 1)
    restored.load({name: array.copy() for name, array in trials.save().items()})
    for each in (trials, restored):
        assert (each.tried.tolist(), each.out.tolist()) == ([False, True], [False, False])
        plan(each, 1)
        plan(each, 0, SECOND)
        for _ in range(2):
            assert each.out.tolist() == [False, True], "the times of the trial are to come"
            each.observe(1.0)
        assert not each.out.any()
        plan(each, 0, SECOND)
        assert each.out.tolist() == [False, True], "it rests again"
