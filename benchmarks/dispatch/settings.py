"""Joint compared with the best of the other mechanisms, in twenty settings of stream, links and cache."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.dispatch.cases import (
    CACHE_RATIO,
    EQUAL_LINKS,
    UNEQUAL_LINKS,
    WORKERS,
    Stream,
    flights,
    make_planner,
    open_stream,
    shuffled,
)
from esd.dispatcher.simulator.simulate import simulate, trace_batches

OTHERS = ("laia", "esd", "hash", "history")
CACHE_RATIOS = (0.03, 0.08)
STREAMS = ("flights", "flights, shuffled", "synthetic:criteo", "synthetic:avazu")


@dataclass(frozen=True, slots=True)
class Setting:
    """The cost of every mechanism in one setting, from cold caches, with equal workloads and seed 0.

    Attributes:
        stream: its name.
        samples_per_worker: m.
        links: `unequal` (4 x 5 Gbit/s, 4 x 0.5) or `equal`.
        cache_ratio: rows of a cache, as a share of the ids.
        cost_seconds: by mechanism.
    """

    stream: str
    samples_per_worker: int
    links: str
    cache_ratio: float
    cost_seconds: dict[str, float]

    @property
    def best_other(self) -> str:
        """The mechanism besides `joint` that costs least."""
        return min(OTHERS, key=self.cost_seconds.__getitem__)

    @property
    def ratio(self) -> float:
        """The cost of joint, in units of the least cost of the others."""
        return self.cost_seconds["joint"] / self.cost_seconds[self.best_other]


def compare_settings(iterations: int, streams: Collection[str] = STREAMS) -> Iterator[Setting]:
    """Yields twenty settings: four streams and a larger m, two kinds of links, two caches; or only some streams."""
    for stream, m in _streams(iterations, streams):
        for links, ratio in itertools.product((UNEQUAL_LINKS, EQUAL_LINKS), CACHE_RATIOS):
            cached = replace(stream, cache_rows=round(stream.cache_rows * ratio / CACHE_RATIO))
            costs = {name: _cost(cached, m, iterations, name, links) for name in (*OTHERS, "joint")}
            yield Setting(stream.name, m, "unequal" if links == UNEQUAL_LINKS else "equal", ratio, costs)


def geometric_mean(settings: Sequence[Setting]) -> float:
    """Returns the geometric mean of the ratios."""
    return math.exp(sum(math.log(setting.ratio) for setting in settings) / len(settings))


def _streams(iterations: int, names: Collection[str]) -> Iterator[tuple[Stream, int]]:
    in_order = flights()
    if "flights" in names:
        yield in_order, 64
        yield in_order, 128
    if "flights, shuffled" in names:
        yield shuffled(in_order), 64
    for name, m in (("synthetic:criteo", 128), ("synthetic:avazu", 64)):
        if name in names:
            yield open_stream(name, iterations * m * WORKERS), m


def _cost(stream: Stream, samples_per_worker: int, iterations: int, mechanism: str, links: str) -> float:
    planner = make_planner(
        mechanism,
        fields=stream.ids.shape[1],
        samples_per_worker=samples_per_worker,
        cache_rows=stream.cache_rows,
        links=links,
    )
    size = samples_per_worker * WORKERS
    return simulate(planner, trace_batches(stream.ids[: iterations * size], size)).cost_seconds
