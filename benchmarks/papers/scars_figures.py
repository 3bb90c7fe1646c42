"""SCARS: expected distinct rows and the size of the cache (equations 1 to 13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import Runs, Setting
from benchmarks.papers.workload import Workload
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import trace_batches
from esd.dispatcher.simulator.sizing.access import AccessTable
from esd.dispatcher.simulator.sizing.coherence import expected_traffic
from esd.dispatcher.simulator.sizing.scars import Device, best_cache, epoch_communication, expected_distinct

ROWS, BATCH = 20_000, 4096
_MEASURED_BATCHES = 200
_CACHES = (3000, 8000, 20_000)
_CLUSTERS = (1, 4, 8)
_BATCH = 64  # per worker


def figures(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Yields every figure of the SCARS paper that a simulator can answer."""
    yield overlap()
    yield distinct_rows(runs)
    yield cache_size(runs)
    yield coherence(runs)


def overlap() -> Figure:
    """§II, end: five times the rows and five times the batch."""
    figure = Figure(
        "scars-overlap", "SCARS §II: communication when rows and batch grow fivefold", "times as much",
        "below 2 (Zipf), 1.5 (exponential), 1.5 (half-normal); 5 without coalescing",
        f"Equation 2 with {ROWS:,} rows and a batch of {BATCH:,}, then five times both. The shapes' scale is"
        " fixed in rows,"
        " as new rows are rare ones. The paper gives no parameters; more skew or larger batches come nearer to its"
        " figures.",
    )  # fmt: skip
    ranks = np.arange(1, 5 * ROWS + 1)
    weights = {
        "Zipf 1.2": ranks**-1.2,
        "exponential": np.exp(-ranks / (ROWS / 8)),
        "half-normal": np.exp(-0.5 * (ranks / (ROWS / 4)) ** 2),
    }
    for name, weight in weights.items():
        small = weight[:ROWS] / weight[:ROWS].sum()
        growth = expected_distinct(weight / weight.sum(), 5 * BATCH) / expected_distinct(small, BATCH)
        figure.add("theory", name, growth)
    return figure


def distinct_rows(runs: Sequence[Runs]) -> Figure:
    """Equation 2 compared with the distinct rows of real batches."""
    figure = Figure(
        "scars-eq2", "SCARS eq. 2: expected over measured distinct rows of a batch", "expected / measured",
        "no measurement",
        "Above 1 where neighbouring samples are alike: the equation takes samples as drawn independently, and flights"
        " come in order of time. Shuffled, the same trace is at 1.",
        groups="lines", x="samples of a batch",
    )  # fmt: skip
    for run in runs:
        for name, workloads in (("as it is", [run.workload]), ("shuffled", _shuffled(run))):
            for batch in filter(len(run.workload.trace).__ge__, (128, 512, 2048, 8192)):
                ratios = [_expected(workload, batch) / _measured(workload, batch) for workload in workloads]
                figure.add(run.workload.name, f"{name} @ {batch}", *ratios)
    return figure


def _shuffled(run: Runs) -> list[Workload]:
    """Returns the samples of a trace in another order for each seed."""
    trace = run.workload.trace
    return [Workload("shuffled", np.random.default_rng(seed).permutation(trace)) for seed in run.seeds]


def _popularity(workload: Workload) -> NDArray[np.float64]:
    """Returns how likely a sample has each row, descending; a row that occurs twice in a sample counts once."""
    ranked = np.sort(workload.trace, axis=1)
    first = np.ones(ranked.shape, np.bool_)
    first[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    counts = np.unique(ranked[first], return_counts=True)[1]
    return np.sort(counts)[::-1] / len(workload.trace)


def _expected(workload: Workload, batch: int) -> float:
    return expected_distinct(_popularity(workload), batch)


def _measured(workload: Workload, batch: int) -> float:
    return float(np.mean([len(np.unique(part.ids)) for part in workload.batches(batch, 10**9)]))


def cache_size(runs: Sequence[Runs]) -> Figure:
    """Equations 6 to 13: the best cache by formula against the best one measured."""
    figure = Figure(
        "scars-cache", "SCARS eq. 6-13: communication over the share of memory for cached rows", "values per lookup",
        "the optimum by binary search; no measurement of it",
        "Memory for 40,000 rows of 16 values; a sample takes 40 values. Measured on the shuffled trace, at most 200"
        " batches. The rightmost point is where the binary search over the formula ends: a sample takes more memory"
        " than a row, so nearly all of it should go to rows, until a batch is a few samples.",
        groups="lines", x="share of memory",
    )  # fmt: skip
    for run in runs:
        trace, workloads = run.workload.trace, _shuffled(run)
        device, popularity = Device(memory=640_000, per_sample=40, per_row=16), _popularity(run.workload)
        samples, lookups = trace.shape
        most = int(device.memory / device.per_row)
        ids, counts = np.unique(trace, return_counts=True)
        ranked = ids[np.argsort(-counts, kind="stable")]
        best = best_cache(popularity, device, samples, lookups=lookups)
        for share in sorted({0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, round(best / most, 4)}):
            cached = min(int(share * most), len(ranked))
            formula = epoch_communication(popularity, device, cached, samples, lookups=lookups)
            measured = [_communication(workload, device, ranked[:cached]) for workload in workloads]
            for name, values in (("formula", [formula]), ("measured", measured)):
                figure.add(run.workload.name, f"{name} @ {share:g}", *(value / trace.size for value in values))
    return figure


def _communication(workload: Workload, device: Device, cached: NDArray[np.uint64]) -> float:
    """Returns the values that an epoch of whole batches moves: an index per lookup, and the uncached rows."""
    batch = int(device.batch(len(cached)))
    seen = rows = 0
    for part in workload.batches(batch, _MEASURED_BATCHES):
        rows += len(np.setdiff1d(part.ids, cached))
        seen += len(part)
    return workload.trace.size + rows * device.per_row * len(workload.trace) / seen if seen else float("nan")


def coherence(runs: Sequence[Runs]) -> Figure:
    """Equation 6 for several workers, whose copies go stale: pulls that are expected over pulls that are counted."""
    figure = Figure(
        "scars-coherence", "SCARS eq. 6 for n workers: expected over counted pulls", "expected / counted",
        "no measurement; one device",
        f"{_BATCH} samples per worker, random dispatch, Emark, the shuffled trace, counted over its second half. Eq. 6"
        " takes cached rows for rows that never move again; with the coherence term of docs/sizing.md a copy is the"
        " latest only while its worker trains the row alone.",
        groups="lines", x="cached rows",
    )  # fmt: skip
    for run in runs:
        trace, workloads = run.workload.trace, _shuffled(run)
        table = AccessTable.of(trace_batches(trace, 4096))
        for workers in (each for each in _CLUSTERS if len(trace) >= 2 * _BATCH * each):
            for cached in _CACHES:
                counted = [_pulls(workload, workers, cached) for workload in workloads]
                traffic = expected_traffic(table.popularity, _BATCH, workers, cached)
                for name, pulls in (("eq. 6", traffic.trained[cached:]), ("coherence", traffic.pulls)):
                    ratios = [float(pulls.sum()) / each for each in counted]
                    figure.add(run.workload.name, f"n = {workers}, {name} @ {cached}", *ratios)
    return figure


def _pulls(workload: Workload, workers: int, cached: int) -> float:
    """Returns the pulls of a worker and iteration."""
    job = Setting(mechanism="random", links=("1g",) * workers, batch=_BATCH).job(workload.fields)
    planner = Planner(job, [1e8] * workers, [cached] * workers)
    pulls = [planner.plan(batch).operations.miss_pull.sum() for batch in workload.batches(job.batch_size, 10**9)]
    return float(np.mean(pulls[len(pulls) // 2 :])) / workers
