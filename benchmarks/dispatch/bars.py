"""The whole benchmark, and the bars that its results must meet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.dispatch.cases import WORKERS, Stream, flights, open_stream, shuffled
from benchmarks.dispatch.quality import HORIZON, MECHANISMS, Quality, compare_costs, compare_makespans
from benchmarks.dispatch.settings import STREAMS, Setting, compare_settings, geometric_mean
from benchmarks.dispatch.speed import Speed, curve, growth, time_decisions

HERALD_MS = 29.9  # Herald's released scheduler, k = 1024, 26 ids, one thread, this class of machine
_COST_LIMITS = {
    "flights": {"unequal": 0.67, "equal": 0.80},
    "flights, shuffled": {"unequal": 0.85},
    "synthetic:criteo": {"unequal": 0.88},
}
_SETTING_MEAN = 0.85  # joint by the best of the others, unequal links
_MS_LIMITS = {("joint", 512): 3, ("joint", 1024): 10, ("joint", 8192): 80}
PARTS = ("costs", "makespans", "settings", "times", "workers")
_TIMED = 60
_TIMED_SAMPLES = 400 * 1024  # of synthetic:criteo
_CURVE_WORKERS = 64
_CURVE_LARGEST = 65_536
_CURVE_ITERATIONS = 3
_GROWTH_WORKERS = (2, 4, 8, 16, 32, 64, 128)
_GROWTH_SAMPLES = 4096
_GROWTH_ITERATIONS = 12
_GROWTH_LIMITED = 64  # workers
_GROWTH_LIMIT = 3  # joint's decision time for so many workers by its time for WORKERS


@dataclass(frozen=True, slots=True)
class Bar:
    """One requirement: `value` is at most, or at least, `limit`."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the measured value is within the bar."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass
class Report:
    """Everything that was measured."""

    quality: list[Quality] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    speed: list[Speed] = field(default_factory=list)
    growth: list[Speed] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Returns everything as plain dicts and lists, for JSON."""
        return {
            "quality": [asdict(result) for result in self.quality],
            "settings": [
                asdict(setting) | {"best_other": setting.best_other, "ratio": setting.ratio}
                for setting in self.settings
            ],
            "ratios": ratios(self.settings),
            "speed": [asdict(result) for result in self.speed],
            "growth": [asdict(result) for result in self.growth],
            "bars": [asdict(bar) | {"met": bar.met} for bar in self.bars],
        }


def run(
    iterations: int,
    seeds: Sequence[int],
    progress: Callable[[str], None],
    parts: Collection[str] = PARTS,
    streams: Collection[str] = STREAMS,
) -> Report:
    """Measures the requested parts. The bars are meant for 400 iterations and 5 seeds.

    Args:
        iterations: number of iterations of every simulation.
        seeds: number of seeds of the simulations for costs and makespans.
        progress: called with the name of each step before it begins.
        parts: names of PARTS to measure.
        streams: names of STREAMS whose costs and settings are measured.
    """
    report = Report()
    if "costs" in parts:
        for stream, m in _streams(iterations, streams):
            progress(f"costs on {stream.name}")
            results = list(compare_costs(stream, m, iterations, seeds))
            report.quality += results
            report.bars += cost_bars(stream.name, results)
    if "makespans" in parts:
        progress("makespans on flights")
        results = list(compare_makespans(flights(), 64, iterations, seeds))
        report.quality += results
        report.bars += makespan_bars(results)
    if "settings" in parts:
        progress("costs from cold caches")
        report.settings += compare_settings(iterations // 2, streams)
        report.bars += setting_bars(report.settings)
    if "times" in parts:
        _measure_times(report, progress)
    if "workers" in parts:
        progress(f"decision times for {_GROWTH_WORKERS[0]} to {_GROWTH_WORKERS[-1]} workers")
        stream = open_stream("synthetic:criteo", _GROWTH_ITERATIONS * _GROWTH_SAMPLES)
        report.growth += growth(stream, _GROWTH_WORKERS, samples=_GROWTH_SAMPLES, iterations=_GROWTH_ITERATIONS)
        report.bars.append(growth_bar(report.growth))
    return report


def _streams(iterations: int, names: Collection[str]) -> Iterator[tuple[Stream, int]]:
    """Yields the streams of `compare_costs`, each with its m."""
    if "flights" in names:
        yield flights(), 64
    if "flights, shuffled" in names:
        yield shuffled(flights()), 64
    if "synthetic:criteo" in names:
        yield open_stream("synthetic:criteo", iterations * 128 * WORKERS), 128


def _measure_times(report: Report, progress: Callable[[str], None]) -> None:
    in_order, criteo = flights(), open_stream("synthetic:criteo", _TIMED_SAMPLES)
    progress("decision times")
    report.speed += _speeds(in_order, criteo)
    report.bars += speed_bars(report.speed)
    progress(f"decision times for {_CURVE_WORKERS} workers")
    many = open_stream("synthetic:criteo", _CURVE_ITERATIONS * _CURVE_LARGEST)
    for mechanism in ("esd", "joint"):
        report.speed += curve(
            many, mechanism, workers=_CURVE_WORKERS, largest=_CURVE_LARGEST, iterations=_CURVE_ITERATIONS
        )


def cost_bars(stream: str, results: Sequence[Quality]) -> Iterator[Bar]:
    """Yields the bars of `compare_costs` on one stream."""
    for links, limit in _COST_LIMITS[stream].items():
        ratio = _pick(results, "joint", links=links).cost_seconds / _pick(results, "laia", links=links).cost_seconds
        yield Bar(f"cost, joint / laia, {stream}, {links} links", ratio, limit)
    ahead = _pick(results, "joint", horizon=HORIZON).cost_seconds / _pick(results, "laia").cost_seconds
    limit = _COST_LIMITS[stream]["unequal"]
    yield Bar(f"cost, joint --horizon {HORIZON} / laia, {stream}, unequal links", ahead, limit)
    esd = _pick(results, "esd")
    if stream == "synthetic:criteo":
        yield Bar("simulated iterations/s, esd, k = 1024, 26 ids", esd.iterations_per_second, 100, at_least=True)


def makespan_bars(results: Sequence[Quality]) -> Iterator[Bar]:
    """Yields the bars of `compare_makespans`."""
    best = _pick(results, "joint", workloads="balanced").makespan_seconds
    others = [_pick(results, name, workloads="balanced") for name in MECHANISMS if name != "joint"]
    yield Bar(
        "makespan, joint / the best of the others, all balanced", best / min(r.makespan_seconds for r in others), 1
    )


def setting_bars(settings: Sequence[Setting]) -> Iterator[Bar]:
    """Yields the bars of `compare_settings`."""
    for links, summary in ratios(settings).items():
        limit = _SETTING_MEAN if links == "unequal" else 1.0
        yield Bar(f"cost, joint / the best of the others, {links} links, geometric mean", summary["mean"], limit)
    yield Bar("cost, joint / the best of the others, worst setting", max(each.ratio for each in settings), 1.0)


def ratios(settings: Sequence[Setting]) -> dict[str, dict[str, float]]:
    """Returns by links how many settings there are, and least, mean and largest of joint by the best other."""
    by_links = itertools.groupby(sorted(settings, key=_links, reverse=True), key=_links)
    found = ((links, list(chosen)) for links, chosen in by_links)
    return {
        links: {
            "count": len(chosen),
            "least": min(each.ratio for each in chosen),
            "mean": geometric_mean(chosen),
            "largest": max(each.ratio for each in chosen),
        }
        for links, chosen in found
    }


def _links(setting: Setting) -> str:
    return setting.links


def _pick(
    results: Sequence[Quality], mechanism: str, *, links: str = "unequal", workloads: str = "equal", horizon: int = 1
) -> Quality:
    wanted = (mechanism, links, workloads, horizon)
    return next(r for r in results if (r.mechanism, r.links, r.workloads, r.horizon) == wanted)


def _speeds(in_order: Stream, criteo: Stream) -> Iterator[Speed]:
    for mechanism in MECHANISMS:
        yield time_decisions(in_order, mechanism, samples=512, iterations=3 * _TIMED, workers=WORKERS)
    for samples, decisions in ((1024, 3 * _TIMED), (8192, _TIMED // 2)):
        for mechanism in MECHANISMS:
            yield time_decisions(criteo, mechanism, samples=samples, iterations=decisions, workers=WORKERS)


def speed_bars(speeds: Sequence[Speed]) -> Iterator[Bar]:
    """Yields the bars of the decision times for 8 workers."""
    ms = {(speed.mechanism, speed.samples): speed.cpu_ms for speed in speeds}
    for (mechanism, samples), limit in _MS_LIMITS.items():
        yield Bar(f"decision ms, {mechanism}, k = {samples}", ms[mechanism, samples], limit)
    ratio = HERALD_MS / ms["laia", 1024]
    yield Bar("Herald's scheduler / laia, decision time, k = 1024", ratio, 20, at_least=True)


def growth_bar(speeds: Sequence[Speed]) -> Bar:
    """Returns the bar of how `joint`'s decision time grows with the workers, for the same batch."""
    ms = {s.workers: s.cpu_ms for s in speeds if s.mechanism == "joint"}
    name = f"decision ms, joint, k = {_GROWTH_SAMPLES}, {_GROWTH_LIMITED} workers / {WORKERS}"
    return Bar(name, ms[_GROWTH_LIMITED] / ms[WORKERS], _GROWTH_LIMIT)
