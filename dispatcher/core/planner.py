"""Turns batches into plans: the state index, a dispatch mechanism and the cost model put together."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.cost_model import CostModel
from dispatcher.core.eviction_risk import EvictionRisk
from dispatcher.core.feedback import ComputeTimes, Feedback, MeasuredLinks
from dispatcher.core.mechanisms import Limits, Mechanism, Turn, get_mechanism
from dispatcher.core.operations import Operations
from dispatcher.core.plan_columns import flush_plan, iteration_plan, reload_plan
from dispatcher.core.row_sizes import RowSizes
from dispatcher.core.workloads import BalancedWorkloads
from esd_native.engine import CacheTooSmall, Engine, IterationColumns
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument, ResourceExhausted
from services.domain.jobs import JobSpec, scale_workloads
from services.domain.plans import FlushPlan, IterationPlan, Reload


@dataclass(frozen=True)
class Decision:
    """One planned iteration.

    Attributes:
        iteration: t, counted from 0.
        assignment: int32 [k], the worker of each sample.
        batch: its samples.
        epoch: membership that the plans are for.
        columns: what each worker does, in slot order.
        operations: rows moved, per worker and kind.
        volume: the same in units of row size.
        unit_bytes: of one unit.
        cost_model: what these operations cost.
        expected_cost_seconds: the mechanism's own estimate, the sum over samples of ESD Alg. 1's cost, which
            counts an id once per sample; 0 for a mechanism that makes no estimate.
        worker_lookups: int64 [n], rows that each worker trains.
        forgotten_rows: that leave the table to keep it within its limit.
        solver: the solver that ran, "" for a mechanism without one.
        gap: its certificate: cost less dual bound, 0 proves optimality; None when there is none.
        seconds: wall time of this decision by phase: `index` (looking the batch up), `score` (costs or
            affinities), `assign` (the assignment), `plan` (advancing the state, building the plans).
    """

    iteration: int
    assignment: NDArray[np.int32]
    batch: SampleBatch
    epoch: int
    columns: IterationColumns
    operations: Operations
    volume: Operations
    unit_bytes: int
    cost_model: CostModel
    expected_cost_seconds: float
    worker_lookups: NDArray[np.int64]
    forgotten_rows: int
    solver: str
    gap: float | None
    seconds: dict[str, float]

    @cached_property
    def plans(self) -> tuple[IterationPlan, ...]:
        """One per worker, in slot order, put together from the columns when first asked for."""
        return tuple(iteration_plan(worker, self.batch, self.epoch) for worker in self.columns)

    @property
    def moved_bytes(self) -> Operations:
        """Bytes moved, per worker and kind."""
        return self.volume * self.unit_bytes

    @cached_property
    def workloads(self) -> NDArray[np.int32]:
        """Samples of each worker, int32 [n]."""
        return np.bincount(self.assignment, minlength=len(self.worker_lookups)).astype(np.int32)

    @cached_property
    def link_seconds(self) -> NDArray[np.float64]:
        """Realised time on each link, float64 [n]."""
        return self.cost_model.link_seconds(self.volume)

    @property
    def cost_seconds(self) -> float:
        """Realised cost: the sum of T_j over all operations (ESD eq. 4)."""
        return float(self.link_seconds.sum())

    @property
    def makespan_seconds(self) -> float:
        """Realised time on the busiest link, when all work at once."""
        return float(self.link_seconds.max())

    @property
    def lookups(self) -> int:
        """(row, worker) pairs that the iteration trains."""
        return int(self.worker_lookups.sum())

    @property
    def hits(self) -> int:
        """Of these, with the latest version in the worker's cache."""
        return self.lookups - int(self.operations.miss_pull.sum())

    @property
    def decision_seconds(self) -> float:
        """Wall time from the batch to the columns of its plans; messages are made of them when they are encoded."""
        return sum(self.seconds.values())


class Planner:
    """Plans one job's stream, batch after batch; knows the links and caches it was given.

    Pure and synchronous: the same job, links, caches, stream and feedback give the same plans, byte for byte. Not for
    concurrent use; the kernels release the GIL, so a call may run in a worker thread.
    """

    def __init__(
        self,
        job: JobSpec,
        bandwidths: Sequence[float],
        cache_rows: Sequence[int],
        *,
        field_dimensions: Sequence[int] = (),
        epoch: int = 0,
        mechanism: Mechanism | None = None,
        snapshot: bytes | None = None,
        warm: bool = True,
    ) -> None:
        """Starts with empty caches at iteration 0, or where a checkpoint left off.

        Args:
            job: what is trained, and how it is dispatched.
            bandwidths: bytes per second of each worker's link to the parameter server, [n].
            cache_rows: rows that each worker's cache holds, [n]; where rows differ in size, it has the bytes of so
                many rows of the job's table.
            field_dimensions: values per row of each field, [F], where rows differ in size (ESD §8.2); a row has the
                size of the field in which it is first trained. None: all have the dimension of the job's table.
            epoch: membership that the plans are for; copied into them.
            mechanism: decides in place of the one that `job.mechanism` names.
            snapshot: made by `checkpoint`.
            warm: caches are as they were then, of a planner with the same caches and policy; else they begin empty,
                and only the rows' versions are taken over.

        Raises:
            InvalidArgument: unknown mechanism, solver or policy, a wrong number of links or caches, or a link
                or cache that is not positive; a snapshot that is damaged or does not fit.
        """
        for name, values in (("bandwidths", bandwidths), ("cache_rows", cache_rows)):
            if len(values) != job.workers:
                raise InvalidArgument(f"{len(values)} {name} given for {job.workers} workers")
        for worker, rows in enumerate(cache_rows):
            if rows < 1:
                raise InvalidArgument(f"cache_rows of worker {worker} is {rows}, it must be at least 1")
        self.job = job
        self.bandwidths = tuple(bandwidths)
        self.cache_rows = tuple(cache_rows)
        self._sizes = RowSizes(job.table, job.fields, field_dimensions)
        self._links = MeasuredLinks(bandwidths)
        self.cost_model = self._cost_model()
        self._evictions = EvictionRisk(job.workers) if job.eviction_term else None
        caches = [self._sizes.cache(rows, job.table) for rows in cache_rows]
        self._balance = _balance(job, [cache // self._sizes.of_sample for cache in caches])
        self._compute_times = ComputeTimes(job.workers)
        self.workloads = job.workloads
        self._epoch = epoch
        self._mechanism = mechanism or get_mechanism(job)
        try:
            self._engine = Engine(caches, job.policy, self._sizes.of_fields, job.rows_kept)
            if snapshot is not None:
                self._engine.restore(snapshot, warm)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    def observe(self, feedback: Feedback) -> None:
        """Takes in what the workers measured; decisions after this call take it into account.

        It does nothing to a job with fixed workloads and links as registered.
        """
        if self._balance is not None:
            self._balance.update(feedback.seconds)
            self._compute_times.update(feedback.seconds)
            self.workloads = self._balance.current()
        if self.job.measured_links and self._links.update(feedback.bandwidths):
            self.cost_model = self._cost_model()

    @property
    def lookahead(self) -> int:
        """How many batches after the present one the mechanism looks at."""
        return self._mechanism.lookahead

    def plan(self, batch: SampleBatch, upcoming: Sequence[SampleBatch] = ()) -> Decision:
        """Assigns the next global batch and advances the mirrored caches by one iteration.

        A batch shorter than the job's batch size (the end of a finite stream) is shared out in proportion to the
        workloads.

        Args:
            batch: 1..batch_size samples.
            upcoming: the batches after it, as many as `lookahead`; fewer if the stream ends before.

        Raises:
            InvalidArgument: the batch is empty, too long, or has another number of fields.
            ResourceExhausted: a cache is smaller than the distinct rows its worker trains in this iteration; the batch
                brings more rows than the table may have, or trains more if it forgets others.
        """
        self._check(batch)
        for following in upcoming:
            self._check(following)
        started = time.perf_counter()
        capacities = np.array(scale_workloads(self.workloads, len(batch)), np.int32)
        self._engine.prepare(np.ascontiguousarray(batch.ids))
        self._check_rows()
        indexed = time.perf_counter()
        iteration = self._engine.iteration
        turn = Turn(
            engine=self._engine,
            ids=batch.ids,
            capacities=capacities,
            iteration=iteration,
            link_costs=self.cost_model.link_costs,
            eviction_costs=self._evictions.costs(self.cost_model.link_costs) if self._evictions else None,
            upcoming=tuple(following.ids for following in upcoming[: self.lookahead]),
            deadline=indexed + (self.job.budget_seconds or math.inf),
            limits=self._limits(len(batch)),
        )
        choice = self._mechanism.decide(turn)
        decided = time.perf_counter()
        try:
            columns = self._engine.commit(choice.assignment)
        except CacheTooSmall as error:
            raise ResourceExhausted(str(error)) from None
        pulls, updates, evictions, drops, lookups = columns.counts
        operations = Operations(pulls, updates, evictions)
        volume = Operations(*columns.sizes) if self._sizes.of_fields else operations
        if self._evictions:
            self._evictions.update(evictions, drops)
        planned = time.perf_counter()
        decision = Decision(
            iteration=iteration,
            assignment=choice.assignment,
            batch=batch,
            epoch=self._epoch,
            columns=columns,
            operations=operations,
            volume=volume,
            unit_bytes=self._sizes.unit_bytes,
            cost_model=self.cost_model,
            expected_cost_seconds=choice.expected_cost * self.cost_model.unit_seconds,
            worker_lookups=lookups,
            forgotten_rows=columns.forgotten,
            solver=choice.solver,
            gap=choice.gap,
            seconds={
                "index": indexed - started,
                "score": choice.score_seconds,
                "assign": decided - indexed - choice.score_seconds,
                "plan": planned - decided,
            },
        )
        if self._balance is not None:
            self._compute_times.plan(decision.link_seconds, decision.workloads)
            if len(batch) == self.job.batch_size:
                self._balance.follow(decision.workloads - capacities)
                self.workloads = self._balance.current()
        return decision

    def flush(self) -> tuple[FlushPlan, ...]:
        """Plans the push of everything the parameter server lacks; afterwards every row is clean."""
        return tuple(flush_plan(columns, self._epoch) for columns in self._engine.flush())

    def _cost_model(self) -> CostModel:
        return CostModel(self._sizes.unit_bytes, self._links.in_use.tolist(), self._sizes.of_sample)

    def _limits(self, samples: int) -> Limits | None:
        """How far a mechanism may depart from balanced workloads; not at all in a short batch."""
        if self._balance is None or samples < self.job.batch_size:
            return None
        sample_costs = self._compute_times.sample_seconds / self.cost_model.unit_seconds
        return Limits(*self._balance.limits, sample_costs)

    def checkpoint(self) -> tuple[tuple[FlushPlan, ...], bytes]:
        """Plans the flush of a checkpoint before the next iteration, and takes a snapshot of the state after it."""
        flushes = tuple(flush_plan(columns, self._epoch, checkpoint=True) for columns in self._engine.flush())
        return flushes, self._engine.snapshot()

    def reloads(self) -> tuple[Reload, ...]:
        """What each worker's cache must hold now, for workers that start with empty ones. Right after `__init__`."""
        checkpoint = self._engine.iteration
        return tuple(reload_plan(columns, checkpoint) for columns in self._engine.contents())

    @property
    def rows(self) -> int:
        """Rows of the table that are trained, or will be by the batches that are being planned."""
        return self._engine.stats()["ids"]

    def _check_rows(self) -> None:
        limit = self.job.max_rows
        if self.job.forgets_rows:
            if self._engine.distinct > limit:
                raise ResourceExhausted(
                    f"iteration {self._engine.iteration} trains {self._engine.distinct} rows, and the table may have "
                    f"{limit}: raise max_rows (--max-rows), or make the batch smaller"
                )
        elif limit and self.rows > limit:
            raise ResourceExhausted(
                f"iteration {self._engine.iteration} brings the table to {self.rows} rows, and it may have {limit}: "
                "raise max_rows (--max-rows), hash the ids to fewer, or let old rows go (--at-max-rows evict)"
            )

    def _check(self, batch: SampleBatch) -> None:
        k = len(batch)
        if not 1 <= k <= self.job.batch_size:
            raise InvalidArgument(f"the batch has {k} samples, it must have 1..{self.job.batch_size}")
        if batch.ids.shape != (k, self.job.fields) or batch.ids.dtype != np.uint64:
            raise InvalidArgument(
                f"ids are {batch.ids.dtype} {batch.ids.shape}, the job needs uint64 ({k}, {self.job.fields})"
            )


def _balance(job: JobSpec, fitting: Sequence[int]) -> BalancedWorkloads | None:
    """The controller of a job with balanced workloads. Nobody gets more samples than surely fit its cache, [n]."""
    if job.workload_limits is None:
        return None
    least, most = job.workload_limits
    upper = [max(m, min(most, fits)) for m, fits in zip(job.workloads, fitting, strict=True)]
    return BalancedWorkloads(job.workloads, [least] * job.workers, upper, delay=job.window - 1)
