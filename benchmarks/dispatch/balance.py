"""The gain by workloads that follow times, compared with equal ones and with the best constant list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.dispatch.cases import CACHE_RATIO, WORKERS, Stream, make_planner, open_stream
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate, trace_batches
from esd.services.domain.errors import InvalidArgument, ResourceExhausted

STREAMS = {"flights": 64, "synthetic:criteo": 128, "synthetic:avazu": 64, "journey": 64}  # and m
MECHANISMS = ("laia", "esd", "hash", "joint")
DIMENSIONS = (64, 512)
CACHE_RATIOS = (0.02, 0.08, 0.20)
SETTLED = 5  # iterations from the start that are left out
SAMPLE_SECONDS = 4.096e-6  # about ten transfers of a row of 64 values over the fastest link
# Tried shares of the workers with fast links, in units of an equal share; the other workers have the rest.
_FAST_SHARES = (1.0, 1.25, 1.4, 1.5, 1.6, 1.7, 1.75, 1.8, 1.85, 1.9, 1.95, 1.97)


@dataclass(frozen=True, slots=True)
class Balance:
    """Makespans of one mechanism under unequal links, the first iterations left out.

    Attributes:
        stream: its name.
        samples_per_worker: m.
        dimension: values of a row.
        cache_ratio: rows of a cache, as a share of the ids.
        mechanism: its name.
        equal_seconds: with equal workloads.
        balanced_seconds: with workloads that follow times.
        best_seconds: with the best of the lists that were tried.
        best_list: that list.
    """

    stream: str
    samples_per_worker: int
    dimension: int
    cache_ratio: float
    mechanism: str
    equal_seconds: float
    balanced_seconds: float
    best_seconds: float
    best_list: tuple[int, ...]

    @property
    def against_best(self) -> float:
        """The makespan of balanced workloads, in units of the makespan of the best list."""
        return self.balanced_seconds / self.best_seconds

    @property
    def against_equal(self) -> float:
        """The makespan of balanced workloads, in units of the makespan of equal workloads."""
        return self.balanced_seconds / self.equal_seconds


def compare_workloads(name: str, iterations: int) -> Iterator[Balance]:
    """Yields every mechanism with every dimension and cache, for the beginning of one of STREAMS.

    Raises:
        InvalidArgument: the stream is none of these.
    """
    if name not in STREAMS:
        raise InvalidArgument(f"stream {name!r} is unknown; known are {', '.join(STREAMS)}")
    samples_per_worker = STREAMS[name]
    stream = open_stream(name, iterations * samples_per_worker * WORKERS)
    for dimension, ratio, mechanism in itertools.product(DIMENSIONS, CACHE_RATIOS, MECHANISMS):
        cached = replace(stream, cache_rows=round(stream.cache_rows * ratio / CACHE_RATIO))
        yield measure_balance(cached, samples_per_worker, iterations, dimension, ratio, mechanism)


def extremes(results: Sequence[Balance]) -> dict[str, dict[str, float]]:
    """Returns the least and the largest of both ratios."""
    ratios = {
        "against_best": [each.against_best for each in results],
        "against_equal": [each.against_equal for each in results],
    }
    return {name: {"least": min(values), "largest": max(values)} for name, values in ratios.items()}


def measure_balance(
    stream: Stream, samples_per_worker: int, iterations: int, dimension: int, cache_ratio: float, mechanism: str
) -> Balance:
    """Simulates the beginning of a stream with equal, balanced and many fixed workloads."""

    def makespan(workloads: tuple[int, ...] | None = None, *, balanced: bool = False) -> float:
        def planner() -> Planner:
            return make_planner(
                mechanism,
                fields=stream.ids.shape[1],
                samples_per_worker=samples_per_worker,
                cache_rows=stream.cache_rows,
                workloads=workloads,
                balanced=balanced,
                dimension=dimension,
            )

        batches = list(
            trace_batches(stream.ids[: iterations * samples_per_worker * WORKERS], samples_per_worker * WORKERS)
        )
        seconds = [SAMPLE_SECONDS] * WORKERS
        started = simulate(planner(), batches[:SETTLED], sample_seconds=seconds)
        return simulate(planner(), batches, sample_seconds=seconds).makespan_seconds - started.makespan_seconds

    lists: dict[tuple[int, ...], float] = {}
    for share in _FAST_SHARES:
        fast = round(share * samples_per_worker)
        workloads = (fast,) * (WORKERS // 2) + (2 * samples_per_worker - fast,) * (WORKERS // 2)
        try:
            lists[workloads] = makespan(workloads)
        except ResourceExhausted:  # the caches of the fast ones are too small for so many
            if not lists:  # and even for equal shares, as where a short stream has few ids
                raise
            break
    best = min(lists, key=lists.__getitem__)
    return Balance(
        stream=stream.name,
        samples_per_worker=samples_per_worker,
        dimension=dimension,
        cache_ratio=cache_ratio,
        mechanism=mechanism,
        equal_seconds=makespan(),
        balanced_seconds=makespan(balanced=True),
        best_seconds=lists[best],
        best_list=best,
    )
