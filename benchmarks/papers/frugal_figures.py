"""FRUGAL: stall time of flushing by priority against write-through (experiments 2 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.figure import Figure
from benchmarks.papers.runs import EQUAL_LINKS, Runs, Setting
from benchmarks.papers.workload import Workload
from services.domain.links import parse_link

BATCHES = (16, 32, 64, 128)
KEYS, FIELDS = 1_000_000, 26  # FRUGAL §4.1: 10 million keys of dimension 32
SAMPLES = 40_000


def figures(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Stall time and speed on FRUGAL's synthetic workload and on ours."""
    zipf = Workload.load(f"synthetic:zipf?skew=0.9&affinity=0&keys={KEYS}&fields={FIELDS}", SAMPLES)
    both = [Runs(zipf, runs[0].iterations, 1), *runs]
    stall = Figure(
        "frugal-exp2-stall", "FRUGAL Exp. 2: stall time of write-through over that of P2F", "times",
        "34 to 101 times less stall (Zipf 0.9, cache 1%)",
        "On a timeline of links and computation, computation 20 row transfers per sample, L = 10; a tenth of the"
        " paper's keys. Only what must be flushed is counted, not what FRUGAL's threads and GPUs do meanwhile. A row"
        " that the very next step reads cannot be deferred; with few keys or large batches these rows are most of"
        " the stall, and no order helps.",
        groups="lines", x="m",
    )  # fmt: skip
    speed = Figure(
        "frugal-exp2-speed", "FRUGAL Exp. 2: throughput of P2F over write-through", "times",
        "3.5 to 5.3 times",
        "Experiment 4 compares two concurrent queues under the same flush order; a simulated timeline has no queue to"
        " contend for, so its 74 to 106.8 times less stall has no counterpart here.",
        groups="lines", x="m",
    )  # fmt: skip
    for run in both:
        for batch in BATCHES:
            through, deferred = (_timeline(run, batch, sync) for sync in ("write-through", "p2f"))
            if through is None or deferred is None:
                continue
            stalls = through["stall_seconds"] / deferred["stall_seconds"] if deferred["stall_seconds"] else np.inf
            stall.add(run.workload.name, f"stall @ {batch}", stalls)
            times = [figures["stall_seconds"] + figures["busy_seconds"] for figures in (through, deferred)]
            speed.add(run.workload.name, f"throughput @ {batch}", times[0] / times[1])
    yield stall
    yield speed


def _timeline(run: Runs, batch: int, sync: str) -> dict[str, float] | None:
    """The timeline's figures, the warm-up included: both orders start from the same cold caches."""
    dim = 32
    transfer = 4 * dim / parse_link(EQUAL_LINKS[0])
    setting = Setting(
        "random", links=EQUAL_LINKS, batch=batch, cache_ratio=0.05, dim=dim, sync=sync, sample_seconds=20 * transfer
    )
    outcome = run.outcome(setting)
    return outcome.figures if outcome else None
