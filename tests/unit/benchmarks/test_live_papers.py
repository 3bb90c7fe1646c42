"""The papers' figures with a speed in them: measurements are kept, and a run follows its setting."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks.papers.live import LiveRuns, LiveSetting, Speed
from benchmarks.papers.live.runs import train

SPEED = Speed(
    samples=256,
    load=1.0,
    iterations=40,
    iteration_ms=100.0,
    pulled_bytes=1e6,
    pushed_bytes=1e6,
    phases_ms={name: [1.0, 2.0] for name in ("plan_wait", "push", "pull", "compute", "all_reduce", "update")},
    processor_ms=50.0,
    decision_ms=0.5,
    auc=0.7,
)


def test_a_run_in_the_file_is_not_made_again(tmp_path) -> None:
    kept, made = tmp_path / "runs.json", []
    settings = [LiveSetting(mechanism="laia", seed=seed) for seed in range(3)]
    kept.write_text(
        json.dumps(
            {
                each.name: asdict(replace(SPEED, iteration_ms=ms))
                for each, ms in zip(settings, (90, 100, 300), strict=True)
            }
            | {LiveSetting(mechanism="joint").name: asdict(replace(SPEED, iteration_ms=50))}
        )
    )
    runs = LiveRuns(kept, seeds=3, progress=made.append)
    assert runs.speed(settings[1]) == SPEED
    assert runs.speed_up(LiveSetting(mechanism="joint"), settings[0]) == pytest.approx(90 / 50)
    assert LiveRuns(kept, 1, made.append).speed_ups(LiveSetting(mechanism="joint"), settings[2]) == [90 / 50]
    assert runs.speed_ups(settings[2], settings[0]) == [1, 1, 1]
    assert runs.loads == (1.0, 1.0)
    assert made == []


def test_every_part_of_a_setting_names_its_run() -> None:
    changed = {"data": "journey", "sync": "full", "shards": 2, "alpha": 0.5, "iterations": 20, "hidden": "8"}
    names = {LiveSetting(**{name: value}).name for name, value in changed.items()}
    assert len(names | {LiveSetting().name}) == len(changed) + 1


def test_waits_and_computation_are_those_of_the_slowest_worker() -> None:
    speed = replace(SPEED, phases_ms=SPEED.phases_ms | {"push": [1.0, 2.0], "pull": [7.0, 5.0], "compute": [3.0, 9.0]})
    assert speed.stall_ms == 8
    assert speed.necessary_ms == 11
    assert speed.samples_per_second == 2560


def test_a_run_trains_what_its_setting_says(tmp_path) -> None:
    setting = LiveSetting(
        data="synthetic:zipf?samples=8000&keys=3000&fields=4", mechanism="random", sync="full", workers=2, links="10m",
        batch=8, dim=8, hidden="8", cache_ratio=0.5, shards=2, iterations=400,
    )  # fmt: skip
    speed = train(setting)
    assert speed.samples == 16
    assert 1 <= speed.iterations < 400
    assert [len(times) for times in speed.phases_ms.values()] == [2] * 6
    assert speed.iteration_ms > speed.stall_ms > 0
    assert speed.pushed_bytes > 16 * 8  # full synchronisation pushes all rows that are trained
