"""Herald: the share of communication, budgets and decisions, speed-ups over HET and FAE (figures 4 to 19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.papers.figure import Figure
from benchmarks.papers.live.runs import EQUAL_LINKS, LiveRuns, LiveSetting, add_lines

# Herald §6.1: equal links, LRU caches of 10%.
HERALD = LiveSetting(links=EQUAL_LINKS, cache_ratio=0.10, policy="lru")
HET = replace(HERALD, mechanism="random", sync="full")
FAE = replace(HERALD, mechanism="random", sync="replicated:2000")
OURS = replace(HERALD, mechanism="joint")
DISPATCHED = {"Herald": HERALD, "joint": OURS}
WORKLOADS = {  # data and model
    "WDL, synthetic:criteo": ("synthetic:criteo", "wdl"),
    "DeepFM, synthetic:avazu": ("synthetic:avazu", "dfm"),
    "DCN, flights": ("flights", "dcn"),
}

_SETTING = (
    "4 workers on links of 8 Mbit/s (the paper: 8 on 100 Gbit/s), m = 64 (256), rows of 128 values (512), LRU caches"
    " of 10%. HET without staleness is random dispatch with full synchronisation"
)


def figures(runs: LiveRuns) -> Iterator[Figure]:
    """Yields every figure of the Herald paper that has a speed in it."""
    yield communication(runs)
    yield budgets(runs)
    yield decisions(runs)
    yield speed_up(runs)
    yield scaling(runs)
    yield cache_ratios(runs)
    yield static_caching(runs)
    yield servers(runs)


def communication(runs: LiveRuns) -> Figure:
    """Makes figure 4 of the paper."""
    figure = Figure(
        "herald-live-fig4", "Herald Fig. 4: share of embedding communication in HET's training time",
        "% of an iteration",
        "up to 63%",
        f"{_SETTING}. The share of the worker that waits longest. Our links are four orders of magnitude"
        " slower than the paper's and our processors are not, so rows are more of an iteration.",
        groups="lines", x="values per row",
    )  # fmt: skip

    def share(setting: LiveSetting) -> float:
        speed = runs.speed(setting)
        return 100 * speed.stall_ms / speed.iteration_ms

    add_lines(figure, "WDL, flights", {"HET": HET}, "dim", (32, 128, 256), share)
    return figure


def budgets(runs: LiveRuns) -> Figure:
    """Makes figure 7 of the paper."""
    figure = Figure(
        "herald-live-fig7", "Herald Fig. 7: necessary iteration time", "ms per iteration",
        "varies by up to 78% between data sets and 67% between batches",
        f"{_SETTING}. Forward, backward and optimizer of the slowest worker, while four of them share two cores.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    for workload in WORKLOADS:
        systems = {"necessary": _on(workload, HERALD)}
        add_lines(figure, workload, systems, "batch", (64, 128), lambda setting: runs.speed(setting).necessary_ms)
    return figure


def decisions(runs: LiveRuns) -> Figure:
    """Figure 12, as one figure for all that a decision takes."""
    figure = Figure(
        "herald-live-fig12", "Herald Fig. 12: time of a decision beside the necessary iteration time", "ms",
        "7.7 ms with 16 threads, of which 42% score and 8% allocate",
        f"{_SETTING}. A decision is everything between a batch and the message of its plans; one thread.",
    )  # fmt: skip
    for workload in WORKLOADS:
        for mechanism, setting in (("LAIA", HERALD), ("joint", OURS)):
            figure.add(workload, mechanism, runs.speed(_on(workload, setting)).decision_ms)
        figure.add(workload, "necessary iteration time", runs.speed(_on(workload, HERALD)).necessary_ms)
    return figure


def speed_up(runs: LiveRuns) -> Figure:
    """Makes figure 14 of the paper."""
    figure = Figure(
        "herald-live-fig14", "Herald Fig. 14: training speed over HET", "iterations per second by HET's",
        "1.09 to 2.11 times over TCP",
        f"{_SETTING}. The paper's workloads are WDL on Criteo, NCF on MovieLens, DeepFM on Avazu, DCN on Criteo"
        " Search.",
    )  # fmt: skip
    _add_speed_ups(figure, runs, HET)
    return figure


def scaling(runs: LiveRuns) -> Figure:
    """Makes figure 15 of the paper."""
    figure = Figure(
        "herald-live-fig15", "Herald Fig. 15: scaling factor", "throughput of n workers by n times that of one",
        "HET 0.42 to 0.60, Herald 0.52 to 0.90 with 8 workers",
        f"{_SETTING}. One worker has a link that does not bind, as in the paper. All workers share two cores, which no"
        " dispatch can change: more than 2 / n is beyond them once they bind.",
        groups="lines", x="workers",
    )  # fmt: skip

    def factor(setting: LiveSetting) -> float:
        alone = runs.speed(replace(setting, workers=1, links="10g", iterations=400)).samples_per_second
        return runs.speed(setting).samples_per_second / (setting.workers * alone)

    add_lines(figure, "flights", {"HET": HET, **DISPATCHED}, "workers", (2, 4), factor)
    return figure


def cache_ratios(runs: LiveRuns) -> Figure:
    """Makes figure 16 of the paper."""
    figure = Figure(
        "herald-live-fig16", "Herald Fig. 16: training speed over HET, by cache ratio",
        "iterations per second by HET's",
        "1.97 to 2.15 times at 4 to 10%",
        f"{_SETTING}.",
        groups="lines", x="cache ratio",
    )  # fmt: skip

    def over_het(setting: LiveSetting) -> float:
        return runs.speed_up(setting, replace(HET, cache_ratio=setting.cache_ratio))

    add_lines(figure, "flights", DISPATCHED, "cache_ratio", (0.04, 0.10), over_het)
    return figure


def static_caching(runs: LiveRuns) -> Figure:
    """Makes figure 17 of the paper."""
    figure = Figure(
        "herald-live-fig17", "Herald Fig. 17: training speed over FAE", "iterations per second by FAE's",
        "1.67 to 51.6 times, with caches of 1%",
        f"{_SETTING}. FAE is random dispatch with the 2,000 hottest rows replicated. Unlike the paper's it caches other"
        " rows, too, and its all-reduce passes no shaped link, so it is nearer.",
    )  # fmt: skip
    _add_speed_ups(figure, runs, FAE)
    return figure


def servers(runs: LiveRuns) -> Figure:
    """Makes figure 19 of the paper."""
    figure = Figure(
        "herald-live-fig19", "Herald Fig. 19: training speed over HET, by parameter servers",
        "iterations per second by HET's",
        "about 1.4 times with more servers, slightly less than with one",
        f"{_SETTING}. Links are the workers' own here, so more servers take nothing off them.",
        groups="lines", x="parameter servers",
    )  # fmt: skip

    def over_het(setting: LiveSetting) -> float:
        return runs.speed_up(setting, replace(HET, shards=setting.shards))

    add_lines(figure, "flights", {"Herald": HERALD}, "shards", (1, 2, 4), over_het)
    return figure


def _add_speed_ups(figure: Figure, runs: LiveRuns, baseline: LiveSetting) -> None:
    for workload in WORKLOADS:
        for mechanism, setting in DISPATCHED.items():
            figure.add(workload, mechanism, runs.speed_up(_on(workload, setting), _on(workload, baseline)))


def _on(workload: str, setting: LiveSetting) -> LiveSetting:
    data, model = WORKLOADS[workload]
    return replace(setting, data=data, model=model)
