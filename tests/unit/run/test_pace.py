"""The speed of a run and the time that it still needs."""

from __future__ import annotations

import math

import pytest

from esd.run.pace import Pace


def after(pace: Pace, *seen: tuple[float, int]) -> Pace:
    for now, confirmed in seen:
        pace.seen(confirmed, now)
    return pace


def test_speed_and_time_left_are_those_of_this_run() -> None:
    pace = after(Pace(704, 94), (100.0, 704), (104.0, 712), (108.0, 724))
    assert (pace.done, pace.iterations_per_second, pace.seconds_left) == (20, 2.5, 29.6)
    assert str(pace) == "20 of 94 iterations, 2.5 per second, 0:00:30 left"


def test_speed_is_that_of_the_latest_ten_seconds() -> None:
    pace = after(Pace(0, 1000), *((float(second), min(10 * second, 500)) for second in range(81)))
    assert (pace.done, pace.iterations_per_second) == (500, 0.0)
    assert math.isnan(pace.seconds_left)
    assert str(pace) == "500 of 1,000 iterations, 0 per second"


def test_a_return_to_a_checkpoint_is_no_negative_speed() -> None:
    pace = after(Pace(0, None), (0.0, 0), (1.0, 30), (2.0, 20), (3.0, 25))
    assert pace.iterations_per_second == pytest.approx(5)
    assert str(pace) == "25 iterations, 5 per second"


@pytest.mark.parametrize("seen", [(), ((5.0, 0),), ((5.0, 0), (5.0, 3))])
def test_nothing_is_made_up(seen: tuple[tuple[float, int], ...]) -> None:
    assert "per second" not in str(after(Pace(0, 10), *seen))
