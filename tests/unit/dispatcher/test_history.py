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


def test_iterations_that_are_trained_again_are_kept_once() -> None:
    history = PointHistory(600)
    history.begin(replace(point(0), begins=True))
    for confirmed in range(1, 9):
        history.add(point(confirmed))
    history.begin(replace(point(5), begins=True, seconds=100.0))
    history.begin(replace(point(5), begins=True, seconds=200.0))  # the epoch before has trained nothing
    history.add(replace(point(6), seconds=203.0))
    assert [(each.iterations, each.begins) for each in history.points] == [
        (0, True), (1, False), (2, False), (3, False), (4, False), (5, False), (5, True), (6, False)
    ]  # fmt: skip
    assert history.points[-1].seconds - history.points[-2].seconds == 3, "without the time that was lost"


def test_a_thinned_history_keeps_the_beginnings_of_its_epochs() -> None:
    history = PointHistory(10)
    history.begin(replace(point(7), begins=True))
    for confirmed in range(8, 31):
        if history.wants(confirmed):
            history.add(point(confirmed))
    history.begin(replace(point(30), begins=True))
    for confirmed in range(31, 200):
        if history.wants(confirmed):
            history.add(point(confirmed))
        assert [each.iterations for each in history.points if each.begins][-1] == 30, "the epoch in which it trains"
        assert len(history.points) <= 12
        assert not any(one.begins and two.begins for one, two in itertools.pairwise(history.points))
