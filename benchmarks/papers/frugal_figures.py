"""FRUGAL: stall time of flushing by priority against write-through (experiments 2 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.figure import Figure
from benchmarks.papers.flush_queues import TreeHeap, TwoLevelQueue
from benchmarks.papers.flushing_work import queue_work
from benchmarks.papers.runs import EQUAL_LINKS, WARM_UP, Runs, Setting
from benchmarks.papers.workload import Workload
from services.domain.links import parse_link

BATCHES = (16, 32, 64, 128)
QUEUE_BATCHES = (8, 16, 32)  # every row is an operation in Python
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
        "The same timeline as above.",
        groups="lines", x="m",
    )  # fmt: skip
    for run in both:
        for batch in BATCHES:
            through, deferred = (_timeline(run, batch, sync) for sync in ("p2f:0", "p2f:10"))
            if through is None or deferred is None:
                continue
            stalls = through["stall_seconds"] / deferred["stall_seconds"] if deferred["stall_seconds"] else np.inf
            stall.add(run.workload.name, f"stall @ {batch}", stalls)
            times = [figures["stall_seconds"] + figures["busy_seconds"] for figures in (through, deferred)]
            speed.add(run.workload.name, f"throughput @ {batch}", times[0] / times[1])
    yield stall
    yield speed
    yield _queues(both)


def _queues(runs: Sequence[Runs]) -> Figure:
    """Experiment 4: both queues do the same work in the same order, so only their own costs differ."""
    figure = Figure(
        "frugal-exp4", "FRUGAL Exp. 4: entries that a tree heap touches over those of the two-level queue", "times",
        "updates of g-entries 1.2 to 1.4 times faster; 74 to 106.8 times less stall; 2.1 to 3.3 times the throughput",
        "Counted, not timed: heap nodes, or entries of hash tables and of the priority index, that one thread reads"
        " or writes, L = 10, flushers that keep up with 80% of what is trained. A heap's work grows with the logarithm"
        " of the rows that wait; the two-level queue's does not. A hash table's entry costs more than a heap's node,"
        " so the time of an update differs by less. Most of the paper's stall is that threads wait for each other near"
        " the root of the heap; counts of one thread cannot show that.",
        groups="lines", x="m",
    )  # fmt: skip
    for run in runs:
        for batch in QUEUE_BATCHES:
            steps = _steps(run, batch)
            work = {kind: queue_work(kind(), steps, lookahead=10, share=0.8) for kind in (TreeHeap, TwoLevelQueue)}
            heap, two_level = work[TreeHeap], work[TwoLevelQueue]
            if not (two_level.touched_by_updates and two_level.touched_by_dequeues):
                continue
            updates = heap.touched_by_updates / two_level.touched_by_updates
            dequeues = heap.touched_by_dequeues / two_level.touched_by_dequeues
            figure.add(run.workload.name, f"update @ {batch}", updates)
            figure.add(run.workload.name, f"dequeue @ {batch}", dequeues)
    return figure


def _steps(run: Runs, batch: int) -> list[NDArray[np.int64]]:
    """Returns the distinct rows of every step, numbered."""
    size = batch * len(EQUAL_LINKS)
    steps = [np.unique(each.ids) for each in run.workload.batches(size, WARM_UP + run.iterations)]
    known = np.unique(np.concatenate(steps)) if steps else np.empty(0, np.uint64)
    return [np.searchsorted(known, step) for step in steps]


def _timeline(run: Runs, batch: int, sync: str) -> dict[str, float] | None:
    """Returns the timeline's figures, the warm-up included: both orders start from the same cold caches."""
    dim = 32
    transfer = 4 * dim / parse_link(EQUAL_LINKS[0])
    setting = Setting(
        "random", links=EQUAL_LINKS, batch=batch, cache_ratio=0.05, dim=dim, sync=sync, sample_seconds=20 * transfer
    )
    outcome = run.outcome(setting)
    return outcome.figures if outcome else None
