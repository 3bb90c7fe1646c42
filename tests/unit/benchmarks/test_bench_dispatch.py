"""The dispatch benchmark on a small stream: its measurements, and that bars are read off the right results."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.dispatch.balance import extremes, measure_balance
from benchmarks.dispatch.bars import Bar, cost_bars, growth_bar, makespan_bars, setting_bars, speed_bars
from benchmarks.dispatch.cases import Stream, shuffled
from benchmarks.dispatch.quality import HORIZON, MECHANISMS, compare_costs, compare_makespans
from benchmarks.dispatch.settings import Setting
from benchmarks.dispatch.speed import Speed, curve, growth, time_decisions


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
    assert {r.mechanism for r in results if r.cost_spread > 0} == {"laia", "joint"}  # the others draw nothing
    bars = list(cost_bars("flights", results))
    costs = {(r.mechanism, r.links): r.cost_seconds for r in results if r.horizon == 1}
    ahead = next(r.cost_seconds for r in results if r.horizon == HORIZON)
    assert [bar.value for bar in bars] == [
        costs["joint", "unequal"] / costs["laia", "unequal"],
        costs["joint", "equal"] / costs["laia", "equal"],
        ahead / costs["laia", "unequal"],
    ]


def test_balanced_workloads_shorten_the_makespan(stream):
    results = list(compare_makespans(stream, samples_per_worker=8, iterations=30, seeds=range(1)))
    seconds = {(r.mechanism, r.workloads): r.makespan_seconds for r in results}
    assert all(seconds[m, "balanced"] < seconds[m, "equal"] for m in MECHANISMS)
    assert [bar.value for bar in makespan_bars(results)] == [
        seconds["joint", "balanced"] / min(seconds[m, "balanced"] for m in MECHANISMS if m != "joint")
    ]


def test_decision_times_leave_the_warm_up_out(stream):
    speed = time_decisions(stream, "joint", samples=64, iterations=12, workers=8)
    assert (speed.samples, speed.fields, speed.workers, speed.decisions) == (64, 5, 8, 8)
    assert 0 < speed.cpu_ms_least <= speed.cpu_ms
    assert set(speed.phases_ms) == {"index", "score", "assign", "plan"}
    assert [s.samples for s in curve(stream, "esd", workers=4, largest=1024, iterations=1)] == [1024]
    grown = list(growth(stream, (2, 128), samples=128, iterations=2))
    assert [(s.mechanism, s.workers) for s in grown] == [(m, n) for m in ("laia", "esd", "joint") for n in (2, 128)]
    assert {s.samples for s in grown} == {128}


def test_speed_bars_are_of_processor_time():
    def speed(mechanism, samples, cpu_ms):
        return Speed("s", 8, samples, 26, mechanism, 1, cpu_ms, 0.0, 99.0, {})

    measured = {("joint", 512): 1, ("laia", 1024): 2, ("joint", 1024): 11, ("joint", 8192): 5}
    *bars, herald = speed_bars([speed(*key, ms) for key, ms in measured.items()])
    assert [bar.value for bar in bars] == [1, 11, 5]
    assert [bar.met for bar in bars] == [True, False, True]
    assert (herald.value, herald.met) == (29.9 / 2, False)


def test_growth_compares_the_same_batch_at_many_workers_and_at_few():
    def speed(workers, samples, mechanism, cpu_ms):
        return Speed("s", workers, samples, 26, mechanism, 1, cpu_ms, 0.0, 99.0, {})

    others = [speed(64, 4096, "esd", 8.0), speed(8, 4096, "esd", 7.0), speed(128, 4096, "joint", 9.0)]
    bar = growth_bar([*others, speed(64, 4096, "joint", 70.0), speed(8, 4096, "joint", 20.0)])
    assert (bar.value, bar.met) == (3.5, False)


def test_settings_are_judged_by_the_best_of_the_others():
    costs = {"laia": 4.0, "esd": 5.0, "hash": 2.0, "history": 3.0}
    settings = [
        Setting("s", 8, links, 0.08, costs | {"joint": joint}) for links, joint in (("unequal", 1.0), ("equal", 2.1))
    ]
    assert [setting.best_other for setting in settings] == ["hash", "hash"]
    unequal, equal, worst = setting_bars(settings)
    assert (unequal.value, unequal.met) == (pytest.approx(0.5), True)
    assert (equal.value, worst.value, worst.met) == (pytest.approx(1.05), 1.05, False)


def test_balanced_workloads_are_judged_by_the_best_list_and_by_equal_ones(stream):
    result = measure_balance(stream, 8, 30, 64, 0.08, "laia")
    assert sum(result.best_list) == 64
    assert result.best_seconds <= result.equal_seconds
    assert result.against_best == result.balanced_seconds / result.best_seconds < 1.1
    assert result.against_equal < 0.8
    slower = replace(result, balanced_seconds=2 * result.best_seconds)
    assert extremes([slower, result])["against_best"] == {"least": result.against_best, "largest": 2.0}


def test_bars_have_a_direction():
    assert Bar("", 1, 2).met
    assert not Bar("", 1, 2, at_least=True).met


def test_shuffling_keeps_the_samples(stream):
    mixed = shuffled(stream)
    assert not np.array_equal(mixed.ids, stream.ids)
    assert sorted(mixed.ids.tolist()) == sorted(stream.ids.tolist())
