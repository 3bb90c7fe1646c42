"""Runs a setting on a workload and keeps the result, because figures share many settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from benchmarks.papers.workload import Workload
from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.core.mechanisms import Mechanism
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.alternatives import Cluster, get_alternative, simulate_alternative
from esd.run.mechanism import choose_options
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.mechanisms import LaiaReading
from esd.services.domain.sync import WAYS, OnDemand, parse_sync
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.domain.units import parse_speed

WARM_UP = 10  # iterations, ESD §6.1 and Herald §6.1

FAST, SLOW = "5g", "0.5g"
ESD_LINKS = (FAST,) * 4 + (SLOW,) * 4  # ESD §6.1
EQUAL_LINKS = (FAST,) * 8  # Herald §6.1, but for the speed, which no ratio depends on


@dataclass(frozen=True, slots=True)
class Setting:
    """One run. The defaults are the values of ESD §6.1.

    Attributes:
        mechanism: by name.
        alpha: share of the exact solver.
        reading: the definition of LAIA's score.
        links: speeds of the n workers' links, bits per second.
        batch: m, samples per worker.
        cache_ratio: share of the workload's rows that a worker caches.
        policy: cache replacement; alternatives have LRU.
        dim: values per row.
        sync: a way to train, or an alternative that is simulated only.
        direct: whether rows go straight to the only worker that needs them.
        sample_seconds: computation per sample.
        eviction_term: whether expected costs contain evict pushes.
        seed: seed of random choices.
    """

    mechanism: str = "laia"
    alpha: float = 1.0
    reading: LaiaReading = LaiaReading.CODE
    links: tuple[str, ...] = ESD_LINKS
    batch: int = 128
    cache_ratio: float = 0.08
    policy: str = "emark"
    dim: int = 512
    sync: str = "on-demand"
    direct: bool = False
    sample_seconds: float = 0.0
    eviction_term: bool = False
    seed: int = 0

    @property
    def trains(self) -> bool:
        """Whether a job can run so."""
        return self.sync.partition(":")[0] in WAYS

    def job(self, fields: int) -> JobSpec:
        """Returns the job of the run."""
        workers, optimizer = len(self.links), OptimizerSpec()
        return JobSpec(
            name="papers",
            dense_sum=ALL_REDUCE,
            workers=workers,
            features=numbered_ids(fields),
            dense_features=0,
            batch_size=self.batch * workers,
            workloads=equal_workloads(self.batch * workers, workers),
            mechanism=self.mechanism,
            mechanism_options=choose_options(
                self.mechanism,
                {"alpha": self.alpha, "eviction_term": self.eviction_term, "laia_reading": self.reading},
            ),
            policy=self.policy,
            seed=self.seed,
            window=1,
            tables=(TableSpec("embeddings", self.dim, optimizer, self.seed, init_scale=0.01),),
            model=ModelSpec("wdl", (), optimizer),
            parameter_servers=("simulated",),
            sync=parse_sync(self.sync, direct=self.direct) if self.trains else OnDemand(direct=self.direct),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The transfers of a run after the warm-up.

    Attributes:
        operations: rows between workers and parameter server.
        cost_seconds: sum of T_j over all rows.
        hit_ratio: share of lookups served from the worker's cache, latest version.
        figures: an alternative's own figures, the whole run's; else how many rows went directly.
    """

    operations: Operations
    cost_seconds: float
    hit_ratio: float
    figures: dict[str, float]

    @property
    def transmissions(self) -> int:
        """Rows moved in all."""
        return int(self.operations.total.sum())


class Runs:
    """All runs of one workload."""

    def __init__(self, workload: Workload, iterations: int, seeds: int) -> None:
        """Runs take `iterations` iterations after the warm-up, if the trace is so long, and `seeds` seeds."""
        self.workload = workload
        self.iterations = iterations
        self.seeds = range(seeds)
        self._outcomes: dict[Setting, Outcome | None] = {}

    def outcome(self, setting: Setting) -> Outcome | None:
        """Returns the outcome of a setting.

        None if its caches are smaller than the rows that a worker trains in an iteration, or if the trace ends in the
        warm-up.
        """
        if len(self.workload.trace) // (setting.batch * len(setting.links)) <= WARM_UP:
            return None
        if setting not in self._outcomes:
            try:
                self._outcomes[setting] = self.measure(setting)
            except ResourceExhausted:
                self._outcomes[setting] = None
        return self._outcomes[setting]

    def each(self, setting: Setting, of: Callable[[Outcome], float]) -> list[float]:
        """Returns a figure of the outcome with each seed; NaN where there is no outcome."""
        outcomes = [self.outcome(replace(setting, seed=seed)) for seed in self.seeds]
        return [of(outcome) if outcome else math.nan for outcome in outcomes]

    def ratios(self, setting: Setting, baseline: Setting, of: Callable[[Outcome], float]) -> list[float]:
        """Returns a figure of the outcome over a baseline's with each seed; infinite where the baseline's is 0."""
        pairs = zip(self.each(setting, of), self.each(baseline, of), strict=True)
        return [ours / theirs if theirs else math.inf for ours, theirs in pairs]

    def reductions(
        self, setting: Setting, baseline: Setting, of: Callable[[Outcome], float] = attrgetter("cost_seconds")
    ) -> list[float]:
        """Returns how much less than a baseline's a figure is with each seed, in percent (of the cost: ESD §6.1)."""
        return [100 * (1 - ratio) for ratio in self.ratios(setting, baseline, of)]

    def measure(self, setting: Setting, mechanism: Mechanism | None = None) -> Outcome:
        """Runs once. Raises ResourceExhausted when a cache is too small."""
        job = setting.job(self.workload.fields)
        capacity = max(1, round(setting.cache_ratio * self.workload.rows))
        capacities = [capacity] * job.workers
        planner = Planner(job, [parse_speed(link) for link in setting.links], capacities, mechanism=mechanism)
        batches = self.workload.batches(job.batch_size, WARM_UP + self.iterations)
        if setting.trains:
            return _planned(planner, batches)
        transfer = planner.cost_model.transfer_seconds
        seconds = [setting.sample_seconds] * job.workers
        profile = self.workload.trace if setting.sync == "fae" else np.empty(0, np.uint64)
        alternative = get_alternative(setting.sync, Cluster(capacities, transfer, seconds, profile))
        totals = simulate_alternative(planner, batches, alternative, warm_up=WARM_UP)
        return Outcome(totals.operations, totals.cost_seconds, totals.hits / totals.lookups, totals.figures)


def _planned(planner: Planner, batches: Iterable[SampleBatch]) -> Outcome:
    operations = Operations.none(planner.job.workers)
    cost, lookups, hits, direct = 0.0, 0, 0, 0
    for batch in batches:
        decision = planner.plan(batch)
        if decision.iteration >= WARM_UP:
            operations += decision.operations
            cost += decision.cost_seconds
            lookups += decision.lookups
            hits += decision.hits
            direct += int(decision.direct_rows.sum())
    return Outcome(operations, cost, hits / lookups, {"direct_rows": direct})
