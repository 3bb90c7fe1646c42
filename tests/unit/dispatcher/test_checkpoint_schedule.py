"""When checkpoints are taken."""

from __future__ import annotations

import math

import pytest

from esd.dispatcher.core.checkpoint_schedule import CheckpointSchedule


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


def test_the_time_to_a_checkpoint_is_known():
    schedule = CheckpointSchedule(10, 6)
    schedule.start(20, 100.0)
    assert schedule.seconds_left(20, 200.0) == math.inf  # nothing has been trained since
    assert schedule.seconds_left(21, 104.5) == 1.5
    assert CheckpointSchedule(10, 0).seconds_left(21, 200.0) == math.inf
