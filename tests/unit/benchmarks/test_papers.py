"""The papers' figures: measured on small traces, written as JSON, Markdown and plots."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from benchmarks.papers import herald_figures, plots, report, scars_figures
from benchmarks.papers.__main__ import main
from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import WARM_UP, Runs, Setting
from benchmarks.papers.workload import Workload

SMALL = Setting(batch=8, cache_ratio=0.3)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.load("synthetic:criteo?samples=20000", 12_000)


@pytest.fixture
def runs(workload: Workload) -> Runs:
    return Runs(workload, iterations=20, seeds=2)


def test_a_workload_is_the_start_of_its_data(workload: Workload) -> None:
    assert workload.name == "synthetic:criteo"
    assert workload.trace.shape == (12_000, 26)
    assert workload.rows == len(set(workload.trace.ravel().tolist()))
    assert [len(batch) for batch in workload.batches(5000, 10)] == [5000, 5000]


def test_the_warm_up_is_not_counted(workload: Workload) -> None:
    short, long = (Runs(workload, n, 1).outcome(SMALL) for n in (20, 40))
    everything = Runs(workload, 20 + WARM_UP, 1).outcome(SMALL)
    assert short.transmissions < everything.transmissions < long.transmissions + short.transmissions


def test_a_reduction_is_relative_to_its_baseline_with_the_same_seed(runs: Runs) -> None:
    esd = replace(SMALL, mechanism="esd")
    for seed, reduction in enumerate(runs.reductions(esd, SMALL)):
        ours, base = (runs.outcome(replace(setting, seed=seed)).cost_seconds for setting in (esd, SMALL))
        assert reduction == pytest.approx(100 * (1 - ours / base))
    by_chance = runs.reductions(replace(SMALL, mechanism="random"), SMALL)
    assert len(set(by_chance)) == 2
    assert max(by_chance) < 0


def test_what_does_not_fit_has_no_number(runs: Runs) -> None:
    assert runs.outcome(replace(SMALL, cache_ratio=1e-6)) is None
    assert runs.outcome(replace(SMALL, batch=5000)) is None
    assert np.isnan(runs.reductions(replace(SMALL, batch=5000), SMALL)).tolist() == [True, True]


def test_herald_saves_more_than_its_parts(workload: Workload) -> None:
    """One counted iteration of m = 128 is enough to tell LAIA, the plan, and both apart."""
    figure = herald_figures.breakdown([Runs(workload, 1, 1)])
    saved = {row.setting: row.value for row in figure.rows}
    assert saved["plan alone: pull"] == pytest.approx(0, abs=2)
    assert saved["both: all"] > max(saved["LAIA alone: all"], saved["plan alone: all"]) > 0


def test_infrequency_counts_all_samples_of_a_batch() -> None:
    """The last half of every 512 samples has one and the same id, which is frequent; all others occur once."""
    trace = np.arange(1, 8193, dtype=np.uint64).reshape(8, 512, 2)
    trace[:, 256:] = 0
    figure = herald_figures.infrequency([Runs(Workload("made up", trace.reshape(-1, 2)), 1, 1)])
    assert {row.setting: row.value for row in figure.rows}["DoI @ 4"] == pytest.approx(100 * (1 - 1 / 410))


def test_brute_force_is_never_beaten(workload: Workload) -> None:
    figure = herald_figures.quality([Runs(workload, 3, 1)])
    assert {row.setting for row in figure.rows} >= {"laia (text) @ 2", "laia (code) @ 2", "esd @ 5"}
    assert all(0 < row.value <= 1.2 for row in figure.rows)  # each follows its own past, so 1 is not a strict bound


def test_equation_2_holds_on_shuffled_samples(workload: Workload) -> None:
    ratios = {row.setting: row.value for row in scars_figures.distinct_rows([Runs(workload, 1, 1)]).rows}
    assert ratios["shuffled @ 128"] == pytest.approx(1, abs=0.03)


def test_fivefold_growth_stays_below_five() -> None:
    growth = {row.setting: row.value for row in scars_figures.overlap().rows}
    assert set(growth) == {"Zipf 1.2", "exponential", "half-normal"}
    assert all(1 < value < 5 for value in growth.values())


def test_the_command_writes_json_a_page_and_plots(tmp_path) -> None:
    data, out, results = "synthetic:zipf?samples=4000&keys=5000&fields=4", tmp_path / "pages", tmp_path / "results"
    main(["--data", data, "--papers", "scars", "--out", str(out), "--results", str(results)])
    figures = json.loads((results / "scars.json").read_text())
    assert [figure["key"] for figure in figures] == ["scars-overlap", "scars-eq2", "scars-cache", "scars-coherence"]
    assert all(figure["values"] for figure in figures)
    page = (out / "scars.md").read_text()
    for figure in figures:
        assert f"![{figure['title']}]({figure['key']}.png)" in page
        assert figure["paper"] in page
        assert (out / f"{figure['key']}.png").read_bytes().startswith(b"\x89PNG")


def _drawn(figure: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """Draws a figure and returns its axes, before they are closed."""
    drawn: list[Axes] = []
    monkeypatch.setattr(plots.plt, "close", lambda canvas: drawn.extend(canvas.axes))
    plots.plot(figure, tmp_path / "plot.png")
    monkeypatch.undo()
    plots.plt.close("all")
    return drawn


@pytest.mark.parametrize(
    ("values", "floor", "bottom", "top"),
    [
        ((920.0, 925.0), None, 0, 925),
        ((-40.0, -2.0), None, -40, 0),
        ((-5.0, 8.0), None, -5, 8),
        ((0.66, 0.67), 0.5, 0.5, 0.67),
    ],
)
def test_axes_of_lines_begin_at_zero_or_at_the_floor(
    values: tuple[float, float],
    floor: float | None,
    bottom: float,
    top: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = Figure("key", "Title", "%", "1 to 2", "Because.", groups="lines", x="m", floor=floor)
    for x, value in zip((64, 128), values, strict=True):
        figure.add("flights", f"ESD @ {x}", value)
    [axes] = _drawn(figure, tmp_path, monkeypatch)
    low, high = axes.get_ylim()
    assert low == (bottom if bottom >= 0 else pytest.approx(bottom, abs=0.1 * (top - bottom)))
    assert high == (top if top <= 0 else pytest.approx(top, abs=0.1 * (top - bottom)))
    assert low <= min(values)
    assert high >= max(values)
    assert axes.get_xticks().tolist() == [64, 128]


def test_series_of_several_workloads_are_beside_each_other_on_one_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Figure("key", "Title", "%", "1 to 2", "Because.", groups="lines", x="m")
    for workload, value in (("flights", 1.0), ("journey", 50.0)):
        for name in ("ESD", "joint"):
            figure.add(workload, f"{name} @ 64", value)
            figure.add(workload, f"{name} @ 128", value)
    left, right = _drawn(figure, tmp_path, monkeypatch)
    assert [left.get_title(), right.get_title()] == ["flights", "journey"]
    assert left.get_ylim() == right.get_ylim()
    legend = right.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ESD", "joint"]


def test_a_bar_that_is_longer_than_its_axis_has_its_value_written_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = Figure("key", "Title", "%", "1 to 2", "Because.", floor=-110)
    figure.add("flights", "ESD", -20.0)
    figure.add("flights", "FAE", -466.0)
    [axes] = _drawn(figure, tmp_path, monkeypatch)
    assert axes.get_xlim()[0] == -110
    assert [text.get_text().strip() for text in axes.texts] == ["-466, beyond this axis"]


def test_the_page_names_missing_numbers_and_shows_what_seeds_change(tmp_path) -> None:
    figure = Figure("key", "Title", "%", "1 to 2", "Because.", rows=[])
    figure.add("flights", "LAIA", math.nan)
    figure.add("flights", "ESD", 12.345)
    figure.add("flights", "joint", 20.0, 30.0, 25.0)
    figure.add("flights", "hash", 20.001, 20.002)
    report.write(report.Page("esd", "Figures", ["Written by hand."]), [figure], tmp_path, tmp_path)
    written = json.loads((tmp_path / "esd.json").read_text())
    values = [value["values"] for value in written[0]["values"]]
    assert values == [[None], [12.345], [20.0, 30.0, 25.0], [20.001, 20.002]]
    page = (tmp_path / "esd.md").read_text()
    assert "| LAIA | n/a |" in page
    assert "| ESD | 12.3 |" in page
    assert "| joint | 25 (20 to 30) |" in page
    assert "| hash | 20 |" in page
