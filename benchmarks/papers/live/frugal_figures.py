"""FRUGAL: proactive flushing against write-through (experiments 1, 2, 5, 7, 8 and 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.papers.figure import Figure
from benchmarks.papers.live.runs import LiveRuns, LiveSetting, add_lines

# §4.1: rows of 32 values, Zipf 0.9, caches of 1 to 10%, no dispatch; a tenth of its keys.
ZIPF = "synthetic:zipf?skew=0.9&affinity=0&keys=1000000&fields=26"
MICRO = LiveSetting(data=ZIPF, mechanism="random", links="4m", dim=32, cache_ratio=0.05, policy="lru")
SYSTEMS = {
    "write-through": replace(MICRO, sync="write-through"),
    "proactive": replace(MICRO, sync="proactive"),
    "on demand": MICRO,
}
_BATCHES = (16, 32, 64)

_SETTING = (
    "4 workers on links of 4 Mbit/s with random dispatch (the paper: 8 GPUs of one machine), `write-through` is its"
    " FRUGAL-SYNC, `proactive` its P2F with L = 10"
)


def figures(runs: LiveRuns) -> Iterator[Figure]:
    """Yields every figure of the FRUGAL paper that has a speed in it and needs no GPU."""
    yield throughput(runs)
    yield stall(runs)
    yield breakdown(runs)
    yield recommendation(runs)
    yield scaling(runs)
    yield layers(runs)


def throughput(runs: LiveRuns) -> Figure:
    """Experiment 1."""
    figure = Figure(
        "frugal-live-exp1", "FRUGAL Exp. 1: throughput", "samples per second",
        "3.3 to 5.1 times FRUGAL-SYNC",
        f"{_SETTING}; rows of 32 values, Zipf 0.9 over 1 million keys.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    add_lines(figure, "zipf 0.9", SYSTEMS, "batch", _BATCHES, lambda setting: runs.speed(setting).samples_per_second)
    return figure


def stall(runs: LiveRuns) -> Figure:
    """Experiment 2."""
    figure = Figure(
        "frugal-live-exp2", "FRUGAL Exp. 2: stall time", "ms per iteration",
        "34 to 101 times less than FRUGAL-SYNC",
        f"{_SETTING}; beside it LAIA on flights over 2 x 40 and 2 x 10 Mbit/s, rows of 128 values. The worker that"
        " waits longest, for pushes and for pulls. Links that are busy all the time leave nothing to do early: over the"
        " equal ones only the wait for other workers' pushes goes. Where some links are idle while others are not,"
        " waiting is cut. The pulls are left: a row that the next step reads has to travel; in the paper reads of host"
        " memory are a part of the kernel.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    unequal = {name: LiveSetting(links="40m,40m,10m,10m", sync=each.sync) for name, each in SYSTEMS.items()}
    for workload, systems in (("zipf 0.9", SYSTEMS), ("flights, LAIA", unequal)):
        add_lines(figure, workload, systems, "batch", _BATCHES, lambda setting: runs.speed(setting).stall_ms)
    return figure


def breakdown(runs: LiveRuns) -> Figure:
    """Experiment 5."""
    figure = Figure(
        "frugal-live-exp5", "FRUGAL Exp. 5: what an iteration is spent on", "ms per iteration",
        "P2F takes 60 to 85% off the communication and 98% off host memory",
        f"{_SETTING}; m = 64. Means over the workers.",
    )  # fmt: skip
    for name, setting in SYSTEMS.items():
        for phase, times in runs.speed(setting).phases_ms.items():
            figure.add("zipf 0.9", f"{name}: {phase.replace('_', ' ')}", sum(times) / len(times))
    return figure


def recommendation(runs: LiveRuns) -> Figure:
    """Experiment 7."""
    figure = Figure(
        "frugal-live-exp7", "FRUGAL Exp. 7: throughput of DLRM", "samples per second",
        "4.9 to 7.4 times PyTorch",
        f"{_SETTING}; m = 64, rows of 32 values. `joint` dispatches and synchronises on demand.",
    )  # fmt: skip
    for data in ("synthetic:avazu", "synthetic:criteo"):
        for name, setting in {**SYSTEMS, "joint": replace(MICRO, mechanism="joint")}.items():
            figure.add(data, name, runs.speed(replace(setting, data=data, model="dlrm")).samples_per_second)
    return figure


def scaling(runs: LiveRuns) -> Figure:
    """Experiment 8."""
    figure = Figure(
        "frugal-live-exp8", "FRUGAL Exp. 8: throughput by workers", "samples per second",
        "grows by 1.2 to 4.9 times from 1 to 8 GPUs",
        f"{_SETTING}; m = 64. All workers share two cores.",
        groups="lines", x="workers",
    )  # fmt: skip
    add_lines(figure, "zipf 0.9", SYSTEMS, "workers", (1, 2, 4), lambda setting: runs.speed(setting).samples_per_second)
    return figure


def layers(runs: LiveRuns) -> Figure:
    """Experiment 11, of which the models of knowledge graphs are left out."""
    figure = Figure(
        "frugal-live-exp11", "FRUGAL Exp. 11: throughput by layers of the MLP", "samples per second",
        "FRUGAL is ahead at every depth, and by less the deeper",
        f"{_SETTING}; DLRM on synthetic:avazu.",
        groups="lines", x="hidden layers of 128",
    )  # fmt: skip
    for name in ("write-through", "proactive"):
        for depth in (2, 4, 6):
            hidden = ",".join(["128"] * depth)
            setting = replace(SYSTEMS[name], data="synthetic:avazu", model="dlrm", hidden=hidden)
            figure.add("synthetic:avazu", f"{name} @ {depth}", runs.speed(setting).samples_per_second)
    return figure
