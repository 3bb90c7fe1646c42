"""SCARS: times of an iteration and of an epoch by cache and by batch, and the loss after a given time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.papers.figure import Figure
from benchmarks.papers.live.runs import WARM_UP, LiveRuns, LiveSetting, add_lines

# One worker and the hottest rows in its cache, as in §IV; the link stands for the bus between memory and GPU.
CACHED = LiveSetting(data="synthetic:criteo", workers=1, links="10m", batch=256, model="dlrm", policy="static", dim=32)
# Cache sizes, as shares of the run's ids: a little above one iteration's rows, and enough for the hot rows.
_LEAST, _HOT = 0.08, 0.32
_CACHES = {"least cache": replace(CACHED, cache_ratio=_LEAST), "hot rows": replace(CACHED, cache_ratio=_HOT)}
_BATCHES = (128, 256, 512)
_SECONDS = 20.0  # of training by the clock

_SETTING = (
    "One worker behind a link of 10 Mbit/s, DLRM, rows of 32 values, the hottest rows in its cache (the paper: two"
    " GPUs, whose memory is the cache)"
)


def figures(runs: LiveRuns) -> Iterator[Figure]:
    """Yields every table of the SCARS paper that has a time in it."""
    yield parts(runs)
    yield cache_sizes(runs)
    yield batches(runs)
    yield learnt(runs)


def parts(runs: LiveRuns) -> Figure:
    """Makes table I of the paper."""
    figure = Figure(
        "scars-live-table1", "SCARS Table I: an iteration with hot rows in the cache and with next to none",
        "ms per iteration",
        "an iteration with 256 MB of hot rows takes 0.60 of the time, backward and optimizer together a twelfth",
        f"{_SETTING}. The least cache holds little more than what an iteration"
        " trains, so nearly every row is pulled before and pushed after; with hot rows in it, only cold ones are.",
    )  # fmt: skip
    for name, setting in _CACHES.items():
        speed = runs.speed(setting)
        figure.add(CACHED.data, f"{name}: rows", speed.stall_ms)
        figure.add(CACHED.data, f"{name}: computation", speed.necessary_ms)
        figure.add(CACHED.data, f"{name}: iteration", speed.iteration_ms)
    return figure


def cache_sizes(runs: LiveRuns) -> Figure:
    """Makes table II of the paper."""
    figure = Figure(
        "scars-live-table2", "SCARS Table II: an iteration by size of the cache", "ms per iteration",
        "128 MB is best; four times as much takes 3.7 times as long, since forward looks up in all of it",
        f"{_SETTING}. Looking up a row takes the same time in every cache here, so more rows never hurt; they just help"
        " less and less.",
        groups="lines", x="cache ratio",
    )  # fmt: skip
    ratios = (_LEAST, 0.16, _HOT, 0.64)
    systems = {"iteration": CACHED}
    add_lines(figure, CACHED.data, systems, "cache_ratio", ratios, lambda setting: runs.speed(setting).iteration_ms)
    return figure


def batches(runs: LiveRuns) -> Figure:
    """Makes tables III to VI of the paper."""
    figure = Figure(
        "scars-live-table3", "SCARS Tables III to VI: time of a million samples by m", "s per million samples",
        "an epoch takes 27.1 min at 2,048 and 4.5 min at 16,384 with hot rows, 3.6 times faster at four times the"
        " batch; the baseline's iteration grows fivefold meanwhile",
        f"{_SETTING}.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    add_lines(figure, CACHED.data, _CACHES, "batch", _BATCHES, lambda each: 1e6 / runs.speed(each).samples_per_second)
    return figure


def learnt(runs: LiveRuns) -> Figure:
    """Makes table VII of the paper."""
    figure = Figure(
        "scars-live-table7", f"SCARS Table VII: AUC after {_SECONDS:g} s of training by m",
        "AUC, each sample scored first",
        "after an hour m = 8,192 is best (80.72% against 80.51% at 2,048), far larger batches are worse",
        f"{_SETTING}. As many iterations as the speeds above allow in that time. The axis begins at 0.5,"
        " which is chance.",
        groups="lines", x="m, samples per worker", floor=0.5,
    )  # fmt: skip

    def auc(setting: LiveSetting) -> float:
        iterations = WARM_UP + round(1e3 * _SECONDS / runs.speed(setting).iteration_ms)
        return runs.speed(replace(setting, iterations=iterations)).auc

    add_lines(figure, CACHED.data, {"AUC": _CACHES["hot rows"]}, "batch", _BATCHES, auc)
    return figure
