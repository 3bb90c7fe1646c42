"""When checkpoints are taken."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.dispatcher.core.checkpoint_schedule import CheckpointSchedule
from esd.services.domain.cuts import Cuts


def taken(schedule, iterations, seconds_each, first=0):
    cuts = []
    schedule.start(first, first * seconds_each)
    for iteration in range(first, iterations):
        now = iteration * seconds_each
        if schedule.due(iteration, now):
            schedule.start(iteration, now)
            cuts.append(iteration)
    return cuts


@pytest.mark.parametrize(
    ("every", "seconds", "expected"),
    [
        (0, 0, []),
        (10, 0, [10, 20, 30]),
        (0, 6, [12, 24, 36]),
        (10, 6, [10, 20, 30]),
        (25, 6, [12, 24, 25, 37]),
    ],
)
def test_whichever_comes_first(every, seconds, expected):
    assert taken(CheckpointSchedule(every, seconds), 40, 0.5) == expected


def test_an_epoch_begins_where_a_checkpoint_was():
    assert taken(CheckpointSchedule(10, 0), 40, 1, first=20) == [30]
    assert taken(CheckpointSchedule(0, 7), 40, 1, first=20) == [27, 34]


def test_samples_make_one_due_by_their_bytes():
    schedule = CheckpointSchedule(10, 0, size=300)
    cuts = []
    for iteration in range(25):
        if schedule.due(iteration, 0.0):
            schedule.start(iteration, 0.0)
            cuts.append(iteration)
        schedule.add(110 if iteration < 12 else 1)
    assert cuts == [3, 6, 9, 10, 20]


def test_the_time_to_a_checkpoint_is_known():
    schedule = CheckpointSchedule(10, 6)
    schedule.start(20, 100.0)
    assert schedule.seconds_left(20, 200.0) == math.inf  # nothing has been trained since
    assert schedule.seconds_left(21, 104.5) == 1.5
    assert CheckpointSchedule(10, 0).seconds_left(21, 200.0) == math.inf


@given(
    first=st.integers(0, 10**6),
    every=st.integers(1, 60),
    seconds=st.sampled_from([0.0, 0.3, 2.0, 1e9]),
    each=st.sampled_from([0.01, 0.1, 1.0]),
    length=st.integers(0, 200),
    resumed=st.integers(0, 200),
)
def test_every_evaluation_has_its_checkpoint(first, every, seconds, each, length, resumed):
    """Of a job that begins anywhere, ends anywhere, and has resumed anywhere; time adds checkpoints and moves none."""
    begins = first + min(resumed, length)
    taken_at = taken(CheckpointSchedule(every, seconds, first=first), first + length, each, begins)
    cuts, evaluated, at = Cuts(first, every), [], begins
    while (at := cuts.after(at)) < first + length:
        evaluated.append(at)
    assert set(evaluated) <= set(taken_at)
    assert [at - first for at in evaluated] == [at for at in range(every, length, every) if at > begins - first]
    if not seconds:
        assert taken_at == evaluated
    if not resumed:
        assert [at - first for at in taken_at] == taken(CheckpointSchedule(every, seconds), length, each), "as a first"


@pytest.mark.parametrize(("iteration", "latest", "after"), [(7, 7, 17), (16, 7, 17), (17, 17, 27), (3, 7, 17)])
def test_cuts_count_from_the_first_iteration(iteration, latest, after):
    cuts = Cuts(7, 10)
    assert (cuts.latest(iteration), cuts.after(iteration)) == (latest, after)
    assert [at for at in range(40) if cuts.at(at)] == [17, 27, 37]


def test_a_job_without_cuts_has_none():
    assert not any(Cuts(7, 0).at(iteration) for iteration in range(40))
    with pytest.raises(ValueError, match="without cuts"):
        Cuts(7, 0).after(7)
