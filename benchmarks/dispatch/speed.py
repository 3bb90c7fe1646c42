"""Decision times: from a batch of ids to the finished plans, index update included."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.dispatch.cases import Stream, make_planner
from esd.dispatcher.simulator.simulate import trace_batches


@dataclass(frozen=True, slots=True)
class Speed:
    """Decision times of one mechanism, after a third of the iterations as warm-up.

    Attributes:
        stream: its name.
        workers: n.
        samples: k.
        fields: F.
        mechanism: its name.
        decisions: how many were timed.
        cpu_ms: median processor time of the deciding thread, which a busy machine blurs less than wall time.
        cpu_ms_least: the least.
        wall_ms: median wall time.
        phases_ms: median wall time by phase of `Decision.seconds`.
    """

    stream: str
    workers: int
    samples: int
    fields: int
    mechanism: str
    decisions: int
    cpu_ms: float
    cpu_ms_least: float
    wall_ms: float
    phases_ms: dict[str, float]


def time_decisions(
    stream: Stream, mechanism: str, *, samples: int, iterations: int, workers: int, cache_rows: int | None = None
) -> Speed:
    """Plans `iterations` batches of k = `samples`. Caches hold at least the rows that one batch may need."""
    fields = stream.ids.shape[1]
    planner = make_planner(
        mechanism,
        fields=fields,
        samples_per_worker=samples // workers,
        cache_rows=max(cache_rows or stream.cache_rows, samples // workers * fields),
        workers=workers,
        links=",".join(["5g"] * (workers - workers // 2) + ["0.5g"] * (workers // 2)),
    )
    cpu, wall, phases = [], [], []
    for batch in trace_batches(stream.ids[: iterations * samples], samples):
        cpu_before, wall_before = time.thread_time(), time.perf_counter()
        decision = planner.plan(batch)
        cpu.append(time.thread_time() - cpu_before)
        wall.append(time.perf_counter() - wall_before)
        phases.append(decision.seconds)
    warm = len(cpu) // 3
    return Speed(
        stream=stream.name,
        workers=workers,
        samples=samples,
        fields=fields,
        mechanism=mechanism,
        decisions=len(cpu) - warm,
        cpu_ms=1e3 * statistics.median(cpu[warm:]),
        cpu_ms_least=1e3 * min(cpu[warm:]),
        wall_ms=1e3 * statistics.median(wall[warm:]),
        phases_ms={name: 1e3 * statistics.median(p[name] for p in phases[warm:]) for name in phases[0]},
    )


def growth(stream: Stream, numbers: Sequence[int], *, samples: int, iterations: int) -> Iterator[Speed]:
    """Decision times of the same batches for each of these numbers of workers."""
    for mechanism, workers in itertools.product(("laia", "esd", "joint"), numbers):
        yield time_decisions(stream, mechanism, samples=samples, iterations=iterations, workers=workers)


def curve(stream: Stream, mechanism: str, *, workers: int, largest: int, iterations: int) -> Iterator[Speed]:
    """Decision times for k = 1024, 4096, ... up to `largest`."""
    samples = 1024
    while samples <= largest:
        yield time_decisions(stream, mechanism, samples=samples, iterations=iterations, workers=workers)
        samples *= 4
