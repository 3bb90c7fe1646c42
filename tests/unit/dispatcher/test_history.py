"""The history of a job stays short, even and exact."""

from __future__ import annotations

import itertools
from dataclasses import replace

from esd.dispatcher.service.state.totals import Point, PointHistory


def point(iterations: int) -> Point:
    """Totals of a job whose iteration t takes t seconds."""
    seconds = iterations * (iterations - 1) / 2
    return Point(iterations, seconds, 8 * iterations, 0.5, 0.7, iterations, 0.1 * iterations, 2.0, 100, 50)


def course(iterations: int, longest: int) -> list[Point]:
    history = PointHistory(longest)
    for confirmed in range(1, iterations + 1):
        if history.wants(confirmed):
            history.add(point(confirmed))
    return history.points


def test_a_short_job_is_kept_whole() -> None:
    assert [each.iterations for each in course(10, 10)] == list(range(1, 11))


def test_a_long_job_is_thinned_out_evenly() -> None:
    for iterations in range(11, 500):
        kept = [each.iterations for each in course(iterations, 10)]
        assert 5 <= len(kept) <= 10
        (step,) = {later - earlier for earlier, later in itertools.pairwise(kept)}
        assert kept[0] == step
        assert iterations - kept[-1] < step


def test_a_fast_job_is_thinned_out_until_its_points_lie_apart() -> None:
    history = PointHistory(600)
    for confirmed in range(1, 2001):  # a hundred iterations per second
        if history.wants(confirmed):
            history.add(replace(point(confirmed), seconds=confirmed / 100))
    kept = [each.iterations for each in history.points]
    assert kept == list(range(32, 2001, 32))


def test_what_is_kept_is_exact() -> None:
    for earlier, later in itertools.pairwise(course(300, 10)):
        between = sum(range(earlier.iterations, later.iterations))
        assert later.seconds - earlier.seconds == between
