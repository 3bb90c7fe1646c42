"""The dispatch benchmark on a small stream: what is measured, and that bars are read off the right results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.dispatch.bars import Bar, cost_bars, makespan_bars, speed_bars
from benchmarks.dispatch.cases import Stream, shuffled
from benchmarks.dispatch.quality import HORIZON, MECHANISMS, compare_costs, compare_makespans
from benchmarks.dispatch.speed import Speed, curve, time_decisions


@pytest.fixture(scope="module")
def stream():
    ids = (300 * np.random.default_rng(2).random((64 * 30, 5)) ** 3).astype(np.uint64)
    return Stream("flights", ids, cache_rows=120)


def test_costs_of_every_mechanism_over_both_kinds_of_links(stream):
    results = list(compare_costs(stream, samples_per_worker=8, iterations=20, seeds=range(2)))
    assert {(r.links, r.mechanism, r.horizon) for r in results} == {
        *itertools.product(("unequal", "equal"), MECHANISMS, (1,)),
        ("unequal", "joint", HORIZON),
    }
    assert all(r.iterations == 16 and r.cost_seconds > 0 and r.iterations_per_second > 0 for r in results)
    assert {r.mechanism for r in results if r.cost_spread > 0} == {"laia", "joint"}  # esd draws nothing
    bars = list(cost_bars("flights", results))
    costs = {(r.mechanism, r.links): r.cost_seconds for r in results if r.horizon == 1}
    ahead = next(r.cost_seconds for r in results if r.horizon == HORIZON)
    assert [bar.value for bar in bars] == [
        costs["joint", "unequal"] / costs["laia", "unequal"],
        costs["joint", "equal"] / costs["laia", "equal"],
        ahead / costs["laia", "unequal"],
        costs["esd", "unequal"] / costs["laia", "unequal"],
    ]


def test_balanced_workloads_shorten_the_makespan(stream):
    results = list(compare_makespans(stream, samples_per_worker=8, iterations=30, seeds=range(1)))
    seconds = {(r.mechanism, r.workloads): r.makespan_seconds for r in results}
    assert all(seconds[m, "balanced"] < seconds[m, "equal"] for m in MECHANISMS)
    assert [bar.value for bar in makespan_bars(results)] == [
        seconds["laia", "equal"] / seconds["joint", "balanced"],
        seconds["joint", "balanced"] / seconds["laia", "balanced"],
    ]


def test_decision_times_leave_the_warm_up_out(stream):
    speed = time_decisions(stream, "joint", samples=64, iterations=12, workers=8)
    assert (speed.samples, speed.fields, speed.workers, speed.decisions) == (64, 5, 8, 8)
    assert 0 < speed.cpu_ms_least <= speed.cpu_ms
    assert set(speed.phases_ms) == {"index", "score", "assign", "plan"}
    assert [s.samples for s in curve(stream, "esd", workers=4, largest=1024, iterations=1)] == [1024]


def test_speed_bars_are_of_processor_time():
    def speed(mechanism, samples, cpu_ms):
        return Speed("s", 8, samples, 26, mechanism, 1, cpu_ms, 0.0, 99.0, {})

    measured = {("joint", 512): 1, ("laia", 1024): 2, ("esd", 1024): 3, ("joint", 1024): 4, ("joint", 8192): 5}
    *bars, herald = speed_bars([speed(*key, ms) for key, ms in measured.items()])
    assert [bar.value for bar in bars] == [1, 2, 3, 4, 5]
    assert [bar.met for bar in bars] == [True, False, False, True, True]
    assert (herald.value, herald.met) == (29.9 / 2, False)


def test_bars_have_a_direction():
    assert Bar("", 1, 2).met
    assert not Bar("", 1, 2, at_least=True).met


def test_shuffling_keeps_the_samples(stream):
    mixed = shuffled(stream)
    assert not np.array_equal(mixed.ids, stream.ids)
    assert sorted(mixed.ids.tolist()) == sorted(stream.ids.tolist())
