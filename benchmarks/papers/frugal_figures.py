"""FRUGAL: stall time of flushing by priority against write-through (experiments 2 and 4)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.figure import Figure
from benchmarks.papers.flush_queues import QUEUES, queue_times
from benchmarks.papers.runs import EQUAL_LINKS, WARM_UP, Outcome, Runs, Setting
from benchmarks.papers.workload import Workload
from esd.services.domain.units import parse_speed

BATCHES = (16, 32, 64, 128)
QUEUE_BATCH, QUEUE_THREADS = 128, (1, 2, 4, 8)
KEYS, FIELDS = 1_000_000, 26  # FRUGAL §4.1: 10 million keys of dimension 32
SAMPLES = 40_000


def figures(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Stall time and speed on FRUGAL's synthetic workload and on ours."""
    zipf = Workload.load(f"synthetic:zipf?skew=0.9&affinity=0&keys={KEYS}&fields={FIELDS}", SAMPLES)
    both = [Runs(zipf, runs[0].iterations, len(runs[0].seeds)), *runs]
    stall = Figure(
        "frugal-exp2-stall", "FRUGAL Exp. 2: stall time of write-through over that of P2F", "times that of P2F",
        "34 to 101 times less stall (Zipf 0.9, cache 1%)",
        "On a timeline of links and computation, computation 20 row transfers per sample, L = 10; a tenth of the"
        " paper's keys. Only what must be flushed is counted, not what FRUGAL's threads and GPUs do meanwhile. A row"
        " that the very next step reads cannot be deferred; with few keys or large batches these rows are most of"
        " the stall, and no order helps.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    speed = Figure(
        "frugal-exp2-speed", "FRUGAL Exp. 2: throughput of P2F over write-through", "times that of write-through",
        "3.5 to 5.3 times",
        "The same timeline as above.",
        groups="lines", x="m, samples per worker",
    )  # fmt: skip
    for run in both:
        for batch in BATCHES:
            through, deferred = (_timeline(batch, sync) for sync in ("p2f:0", "p2f:10"))
            stall.add(run.workload.name, f"stall @ {batch}", *run.ratios(through, deferred, _stall))
            speed.add(run.workload.name, f"throughput @ {batch}", *run.ratios(through, deferred, _time))
    yield stall
    yield speed
    yield from _queues(both)


def _queues(runs: Sequence[Runs]) -> Iterator[Figure]:
    """Experiment 4: all queues do the same work in the same order, so only their own costs differ."""
    machine = (
        f"Wall time of native/yardsticks/flush_queues.cpp, the fastest of three runs, on {os.cpu_count()} cores with a"
        f" load of {os.getloadavg()[0]:.0f} by other work: more threads than cores show what it costs to wait for one"
        f" that does not run. m = {QUEUE_BATCH}, 8 workers,"
        " L = 10, flushers that keep up with 80% of what is trained."
    )
    against = Figure(
        "frugal-exp4", "FRUGAL Exp. 4: time of a tree heap over that of the two-level queue",
        "times that of the two-level queue",
        "updates of g-entries 1.2 to 1.4 times faster; 74 to 106.8 times less stall; 2.1 to 3.3 times the throughput",
        f"{machine} Our queues are one per worker, since each worker's link is flushed on its own, so their threads"
        " share nothing. One heap is FRUGAL's yardstick, a lock per node; a heap per worker leaves the logarithm and"
        " takes the waiting for each other away. The sets of reads, which cost every queue the same, are not timed."
        " With more threads our queues are done so soon that most of their time is spent on starting together.",
        groups="lines", x="threads",
    )  # fmt: skip
    speed = Figure(
        "frugal-exp4-speed", "FRUGAL Exp. 4: operations of each queue", "million operations per second",
        "not shown",
        "The same runs: enqueue, adjustPriority and dequeue together.",
        groups="lines", x="threads",
    )  # fmt: skip
    for run in runs:
        times = queue_times(_steps(run, QUEUE_BATCH), QUEUE_THREADS)
        ours = {each.threads: each for each in times if each.queue == "two-level"}
        for each in times:
            base = ours[each.threads]
            for kind in ("update", "dequeue") if each is not base else ():
                ratio = getattr(each, f"{kind}_seconds") / getattr(base, f"{kind}_seconds")
                against.add(run.workload.name, f"{QUEUES[each.queue]}, {kind} @ {each.threads}", ratio)
            operations = (each.updates + each.dequeues) / (each.update_seconds + each.dequeue_seconds)
            speed.add(run.workload.name, f"{QUEUES[each.queue]} @ {each.threads}", operations / 1e6)
    yield against
    yield speed


def _steps(run: Runs, batch: int) -> list[NDArray[np.uint32]]:
    """Returns the distinct rows of every step, numbered."""
    size = batch * len(EQUAL_LINKS)
    steps = [np.unique(each.ids) for each in run.workload.batches(size, WARM_UP + run.iterations)]
    known = np.unique(np.concatenate(steps)) if steps else np.empty(0, np.uint64)
    return [np.searchsorted(known, step).astype(np.uint32) for step in steps]


def _timeline(batch: int, sync: str) -> Setting:
    dim = 32
    transfer = 4 * dim / parse_speed(EQUAL_LINKS[0])
    return Setting(
        "random", links=EQUAL_LINKS, batch=batch, cache_ratio=0.05, dim=dim, sync=sync, sample_seconds=20 * transfer
    )


def _stall(outcome: Outcome) -> float:
    """Returns the timeline's stall, the warm-up included: both orders start from the same cold caches."""
    return outcome.figures["stall_seconds"]


def _time(outcome: Outcome) -> float:
    return outcome.figures["stall_seconds"] + outcome.figures["busy_seconds"]
