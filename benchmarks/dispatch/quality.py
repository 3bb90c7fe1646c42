"""The cost of a stream under each mechanism, by seed, and the speed of the simulator meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.dispatch.cases import EQUAL_LINKS, UNEQUAL_LINKS, Stream, make_planner
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate, trace_batches
from esd.dispatcher.simulator.totals import Totals
from esd.services.domain.mechanisms import JointOptions

MECHANISMS = ("laia", "esd", "hash", "history", "joint")
WARM_UP_SHARE = 5  # a fifth of a run
HORIZON = 8  # of joint, where it looks ahead
COMPUTE_TRANSFERS = 10  # computation of a sample, in row transfers over the fastest link, where it counts


@dataclass(frozen=True, slots=True)
class Quality:
    """One mechanism on one stream, mean over the seeds.

    Attributes:
        stream: its name.
        links: `unequal` (4 x 5 Gbit/s, 4 x 0.5) or `equal`.
        workloads: `equal` or `balanced`.
        mechanism: its name.
        horizon: batches that a decision looks at.
        samples_per_worker: m.
        iterations: counted ones; a fifth of the run before them fills the caches and settles the workloads.
        cost_seconds: mean of the total.
        cost_spread: standard deviation over the seeds, relative to the mean; 0 for one seed.
        makespan_seconds: mean of the total, computation included where workloads are compared.
        iterations_per_second: of the simulator, by thread time.
    """

    stream: str
    links: str
    workloads: str
    mechanism: str
    horizon: int
    samples_per_worker: int
    iterations: int
    cost_seconds: float
    cost_spread: float
    makespan_seconds: float
    iterations_per_second: float


def compare_costs(stream: Stream, samples_per_worker: int, iterations: int, seeds: Sequence[int]) -> Iterator[Quality]:
    """Yields every mechanism over unequal links and equal ones, joint also looking ahead; workloads are equal."""
    for links in (UNEQUAL_LINKS, EQUAL_LINKS):
        for mechanism in MECHANISMS:
            yield measure(stream, samples_per_worker, iterations, seeds, mechanism, links)
    yield measure(stream, samples_per_worker, iterations, seeds, "joint", horizon=HORIZON)


def compare_makespans(
    stream: Stream, samples_per_worker: int, iterations: int, seeds: Sequence[int]
) -> Iterator[Quality]:
    """Yields every mechanism with equal and balanced workloads, over unequal links, samples taking time to compute."""
    for balanced in (False, True):
        for mechanism in MECHANISMS:
            yield measure(stream, samples_per_worker, iterations, seeds, mechanism, computing=True, balanced=balanced)


def measure(
    stream: Stream,
    samples_per_worker: int,
    iterations: int,
    seeds: Sequence[int],
    mechanism: str,
    links: str = UNEQUAL_LINKS,
    *,
    computing: bool = False,
    balanced: bool = False,
    horizon: int = 1,
) -> Quality:
    """Simulates the beginning of a stream with every seed."""
    warm = iterations // WARM_UP_SHARE
    fresh_planner = partial(
        make_planner,
        mechanism,
        fields=stream.ids.shape[1],
        samples_per_worker=samples_per_worker,
        cache_rows=stream.cache_rows,
        links=links,
        balanced=balanced,
        options=JointOptions(horizon) if horizon > 1 else None,
    )
    costs, makespans, seconds, simulated = [], [], 0.0, 0
    for seed in seeds:
        started = time.thread_time()
        # The cost of the warm-up is the cost of the same run cut short.
        before = _simulate(fresh_planner(seed=seed), stream, warm, computing=computing)
        totals = _simulate(fresh_planner(seed=seed), stream, iterations, computing=computing)
        seconds += time.thread_time() - started
        simulated += before.iterations + totals.iterations
        costs.append(totals.cost_seconds - before.cost_seconds)
        makespans.append(totals.makespan_seconds - before.makespan_seconds)
    mean = statistics.fmean(costs)
    return Quality(
        stream=stream.name,
        links="unequal" if links == UNEQUAL_LINKS else "equal",
        workloads="balanced" if balanced else "equal",
        mechanism=mechanism,
        horizon=horizon,
        samples_per_worker=samples_per_worker,
        iterations=iterations - warm,
        cost_seconds=mean,
        cost_spread=statistics.stdev(costs) / mean if len(costs) > 1 else 0.0,
        makespan_seconds=statistics.fmean(makespans),
        iterations_per_second=simulated / seconds,
    )


def _simulate(planner: Planner, stream: Stream, iterations: int, *, computing: bool) -> Totals:
    size = planner.job.batch_size
    sample = COMPUTE_TRANSFERS * float(planner.cost_model.transfer_seconds.min()) if computing else 0.0
    batches = trace_batches(stream.ids[: iterations * size], size)
    return simulate(planner, batches, sample_seconds=[sample] * planner.job.workers)
