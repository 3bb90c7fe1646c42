"""The figures that `python -m benchmarks.tables` makes of the states that it sees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.tables import Course, Place, memory_of


def test_the_stall_of_a_checkpoint_is_what_its_longest_iteration_takes_beyond_a_usual_one() -> None:
    course = Course(Place({}, Path(), Path()))
    now = 0.0
    for iteration in range(1, 101):
        now += {20: 3.0, 41: 5.0, 70: 9.0}.get(iteration, 0.5)  # 70 is long after the checkpoint at 60
        course.confirmed.append((iteration, now))
    assert course.stalls(20) == pytest.approx({20: 2.5, 40: 4.5, 60: 0.0, 80: 0.0})
    assert course.seconds_of_iterations()[1] == 0.5


def test_the_memory_of_a_process_is_its_own_or_nothing_once_it_has_ended() -> None:
    assert memory_of(os.getpid()) > 10 << 20
    assert memory_of(2**22 + 1) == 0  # no process has this number
