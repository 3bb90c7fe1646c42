"""Herald: transmissions, degree of infrequency, adaptive scoring, quality (figures 3 to 20, table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import EQUAL_LINKS, FAST, Outcome, Runs, Setting
from benchmarks.papers.workload import Workload
from esd.dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from esd.dispatcher.core.mechanisms.table_profiler import TableProfiler
from esd.dispatcher.simulator.alternatives.cached_rows import LruCaches, RowNumbers
from esd.dispatcher.simulator.simulate import trace_batches
from esd.services.domain.mechanisms import LaiaReading

# Herald §6.1: equal links, LRU caches of 10%, m = 128.
HERALD = Setting(links=EQUAL_LINKS, cache_ratio=0.10, policy="lru")
VANILLA = replace(HERALD, mechanism="random", sync="full")
PLAN_ONLY = replace(HERALD, mechanism="random")
LAIA_ONLY = replace(HERALD, sync="full")


def figures(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Yields every figure of the Herald paper that a simulator can answer."""
    yield distinct_rows(runs)
    yield infrequency(runs)
    yield infrequency_of_tables(runs)
    yield breakdown(runs)
    yield adaptive(runs)
    yield cache_ratios(runs)
    yield quality(runs)
    yield peer_to_peer(runs)


def distinct_rows(runs: Sequence[Runs]) -> Figure:
    """Makes figure 3 of the paper."""
    figure = Figure(
        "herald-fig3", "Herald Fig. 3: distinct rows per iteration over m", "relative to m = 64",
        "2.7 to 4.0 times at m = 256", "", groups="lines", x="m, samples per worker",
    )  # fmt: skip
    for run in runs:
        means = {m: _mean_distinct(run.workload, 8 * m) for m in (64, 128, 192, 256)}
        for m, value in means.items():
            figure.add(run.workload.name, f"distinct rows @ {m}", value / means[64])
    figure.comment = (
        "An iteration trains 8 m samples. Streams in order of time, as flights, share more rows between neighbouring"
        " samples than shuffled ones, so they grow less."
    )
    return figure


def _mean_distinct(workload: Workload, size: int) -> float:
    return float(np.mean([len(np.unique(batch.ids)) for batch in workload.batches(size, 20)]))


def infrequency(runs: Sequence[Runs]) -> Figure:
    """Makes figure 6 of the paper."""
    figure = Figure(
        "herald-fig6", "Herald Fig. 6: degree of infrequency of cached rows", "% of the rows in LRU caches of 10%",
        "above 99% for all data sets and cluster sizes",
        "A row is infrequent when it is accessed less often than one worker trains samples. Our traces are a"
        " thousandth of the papers' epochs, so a row needs few accesses to be frequent, and the share grows"
        " with the length.",
        groups="lines", x="workers",
    )  # fmt: skip
    for run in runs:
        for workers in (4, 8, 16, 32):
            shares = [100 * _cached_infrequency(run.workload, workers, seed) for seed in run.seeds]
            figure.add(run.workload.name, f"DoI @ {workers}", *shares)
    return figure


def _cached_infrequency(workload: Workload, workers: int, seed: int) -> float:
    """Returns which share of the rows that the workers cache at the end under random dispatch is infrequent."""
    numbers, caches = RowNumbers(), LruCaches([round(0.10 * workload.rows)] * workers)
    rng = np.random.default_rng(seed)
    for now, batch in enumerate(workload.batches(128 * workers, 10**9)):
        rows = numbers.of(batch.by_field)[rng.permutation(len(batch))]
        caches.grow(len(numbers))
        for worker, micro_batch in enumerate(np.split(rows, workers)):
            caches.use(worker, np.unique(micro_batch), now)
    accesses = np.bincount(numbers.of(workload.trace).ravel(), minlength=caches.present.shape[1])
    infrequent = accesses < len(workload.trace) / workers
    return float((caches.present & infrequent).sum() / caches.present.sum())


def infrequency_of_tables(runs: Sequence[Runs]) -> Figure:
    """Makes figure 10 of the paper."""
    figure = Figure(
        "herald-fig10", "Herald Fig. 10: degree of infrequency by table, 8 workers", "% of the table's rows",
        "from below 1% to above 99%",
        "Of all rows seen. Tables of a handful of values are at 0; in traces this short most others are at 100%.",
        groups="lines", x="table, by rank",
    )  # fmt: skip
    for run in runs:
        profiler = TableProfiler(run.workload.fields, workers=8)
        profiler.add(next(trace_batches(run.workload.trace, len(run.workload.trace))))
        for rank, degree in enumerate(sorted(profiler.degrees())):
            figure.add(run.workload.name, f"DoI @ {rank + 1}", 100 * degree)
    return figure


def breakdown(runs: Sequence[Runs]) -> Figure:
    """Makes figure 11 and table 2 of the paper."""
    figure = Figure(
        "herald-fig11-table2", "Herald Fig. 11 and Table 2: transmissions saved against vanilla", "% of vanilla's",
        "Herald: pull 43-88, push 51-90, all 48-89 over four workloads. On W1 (WDL, Criteo): LAIA alone 54 / 17 / 35,"
        " plan alone 0 / 13 / 7, both 54 / 63 / 59 (pull / push / all)",
        "Vanilla is random dispatch with full synchronisation. Evict pushes count as pushes. LAIA alone also saves"
        " pushes, since fewer distinct rows are trained in all. Exact on-demand synchronisation pulls what full"
        " synchronisation pulls; Herald's 0% says the same.",
    )  # fmt: skip
    text = LaiaReading.TEXT
    variants = {
        "LAIA alone": LAIA_ONLY,
        "LAIA (text) alone": replace(LAIA_ONLY, reading=text),
        "plan alone": PLAN_ONLY,
        "both": HERALD,
        "both, LAIA (text)": replace(HERALD, reading=text),
    }
    for run in runs:
        for name, setting in variants.items():
            for kind, count in _TRANSMISSIONS.items():
                figure.add(run.workload.name, f"{name}: {kind}", *run.reductions(setting, VANILLA, count))
    return figure


_ALL: Callable[[Outcome], int] = attrgetter("transmissions")
_TRANSMISSIONS: dict[str, Callable[[Outcome], int]] = {
    "pull": lambda outcome: int(outcome.operations.miss_pull.sum()),
    "push": lambda outcome: outcome.transmissions - int(outcome.operations.miss_pull.sum()),
    "all": _ALL,
}


def _spared(outcome: Outcome) -> float:
    """Returns which share of the rows moved, in percent, neither comes from a parameter server nor goes to one."""
    return 100 * 2 * outcome.figures["direct_rows"] / outcome.transmissions


def adaptive(runs: Sequence[Runs]) -> Figure:
    """Makes figure 13 of the paper."""
    figure = Figure(
        "herald-fig13", "Herald Fig. 13: adaptive LAIA, transmissions over tables scored", "relative to all tables",
        "below 1.11 with at least 4 of 26 tables",
        "Tables in the order of their degree of infrequency. In traces this short most tables tie at 100%, so the order"
        " among them says little, and more of them are needed than in the paper's epochs.",
        groups="lines", x="tables scored",
    )  # fmt: skip
    for run in runs:
        fields = run.workload.fields
        moved = {k: _adaptive_transmissions(run, k) for k in (1, 2, 4, 8, 12, 16, 20, 26) if k < fields}
        moved[fields] = _adaptive_transmissions(run, fields)
        for k, transmissions in moved.items():
            ratios = [some / every for some, every in zip(transmissions, moved[fields], strict=True)]
            figure.add(run.workload.name, f"adaptive LAIA @ {k}", *ratios)
    return figure


def _adaptive_transmissions(run: Runs, tables: int) -> list[int]:
    settings = [replace(HERALD, seed=seed) for seed in run.seeds]
    jobs = [setting.job(run.workload.fields) for setting in settings]
    return [
        run.measure(setting, LaiaAdaptive(job, tables=tables)).transmissions
        for setting, job in zip(settings, jobs, strict=True)
    ]


def cache_ratios(runs: Sequence[Runs]) -> Figure:
    """Makes figure 16 of the paper."""
    figure = Figure(
        "herald-fig16", "Herald Fig. 16: HET's transmissions over Herald's, by cache ratio", "times Herald's",
        "training is 1.97 to 2.15 times as fast as HET at 4 to 10% (W1)",
        "Transmissions, not speed: computation and the dense part are not simulated.",
        groups="lines", x="cache ratio",
    )  # fmt: skip
    for run in runs:
        for ratio in (0.04, 0.06, 0.08, 0.10):
            het, herald = (replace(setting, cache_ratio=ratio) for setting in (VANILLA, HERALD))
            times = run.ratios(het, herald, _ALL)
            figure.add(run.workload.name, f"HET / Herald @ {ratio:g}", *times)
    return figure


def quality(runs: Sequence[Runs]) -> Figure:
    """Makes figure 20 of the paper."""
    figure = Figure(
        "herald-fig20", "Herald Fig. 20: transmissions of brute force over those of LAIA and ESD, m = 1", "ratio",
        "0.45 to 0.57 for 2 to 10 workers and more",
        "Brute force is the least cost of each iteration with evictions, followed from its own past. With m = 1 and"
        " caches that have just begun to fill, most transmissions are pulls of rows that nobody has seen yet, the"
        " same for every mechanism; the paper's caches are full. Both readings of LAIA are about as near to the"
        " optimum, so the choice between them is no reason for the difference.",
        groups="lines", x="workers",
    )  # fmt: skip
    for run in runs:
        for workers in (2, 3, 4, 5):
            setting = Setting(links=(FAST,) * workers, batch=1, cache_ratio=0.10, policy="lru")
            oracle = replace(setting, mechanism="brute-force")
            others = {
                "laia (text)": replace(setting, reading=LaiaReading.TEXT),
                "laia (code)": setting,
                "esd": replace(setting, mechanism="esd"),
            }
            for name, other in others.items():
                ratios = run.ratios(oracle, other, _ALL)
                figure.add(run.workload.name, f"{name} @ {workers}", *ratios)
    return figure


def peer_to_peer(runs: Sequence[Runs]) -> Figure:
    """Appendix B, which has no numbers."""
    figure = Figure(
        "herald-appendix-b", "Herald App. B: on-demand synchronisation, worker to worker",
        "% of the rows moved that the parameter server is spared",
        "no numbers",
        "With --direct: a row that goes straight from worker to worker is neither pushed to the parameter server nor"
        " pulled from it. Links carry what they carry without. Links as in ESD §6.1.",
    )  # fmt: skip
    for run in runs:
        for name in ("laia", "esd"):
            setting = Setting(mechanism=name, direct=True)
            figure.add(run.workload.name, name, *run.each(setting, _spared))
    return figure
