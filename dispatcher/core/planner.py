"""Turns batches into plans: the state index, a dispatch mechanism and the cost model put together."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.admission import Admission
from esd.dispatcher.core.balancing import Balancing
from esd.dispatcher.core.cost_model import CostModel, EvictionRisk, Operations, RowSizes, slowest_link
from esd.dispatcher.core.decision import Decision, flush_plan, reload_plan
from esd.dispatcher.core.decision_time import DecisionTime, NecessaryTime
from esd.dispatcher.core.feedback import Feedback, MeasuredLinks
from esd.dispatcher.core.learned import ADMISSION, Learned, Learner, Snapshot
from esd.dispatcher.core.mechanisms import DispatchInput, Mechanism, Sites, get_mechanism
from esd.dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from esd.dispatcher.core.resting import Resting
from esd.dispatcher.core.sync import SyncContext, sync_planning
from esd.native.engine import BatchIds, CacheTooSmall
from esd.native.engines import engine_of
from esd.services.domain.auto_sum import with_chosen_sum
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.domain.job_samples import sites_of_samples
from esd.services.domain.jobs import JobSpec
from esd.services.domain.negatives import SamplesWithLists
from esd.services.domain.plans import FlushPlan, Reload
from esd.services.domain.worker_set import WorkerSet
from esd.services.domain.workloads import scale_workloads

# Rows that a planner knows although no worker caches them. Fewer would save little memory, about 45 bytes each. The
# mechanism `history` knows nothing but such rows, at 4 more bytes per row and worker.
_SPARE_ROWS = 1 << 16
_MANY_SPARE_ROWS = 1 << 22


class Planner:
    """Plans one job's stream, batch after batch; knows the links and caches it was given.

    It is pure and synchronous: the same job, links, caches, stream and feedback give the same plans, byte for byte. It
    is not for concurrent use; the kernels release the GIL, so a call may run in a thread of its own.

    Attributes:
        warm: whether its caches began as they were at the snapshot.
        rests: whether workers rest while they have no samples, if the job lets them.
        knows_workers: whether it continues with the feedback of these workers that a snapshot holds. The feedback of
            iterations that were planned before the snapshot, and not yet observed, is to be observed then.
    """

    def __init__(
        self,
        job: JobSpec,
        bandwidths: Sequence[float],
        cache_rows: Sequence[int],
        *,
        worker_limits: Sequence[tuple[int, int]] = (),
        members: WorkerSet | None = None,
        epoch: int = 0,
        mechanism: Mechanism | None = None,
        snapshot: Snapshot | None = None,
        warm: bool = True,
        rests: bool = False,
    ) -> None:
        """Starts with empty caches at iteration 0, or where a checkpoint left off.

        Args:
            job: the job, with its dispatch. If it leaves open how dense gradients are summed, these links decide.
            bandwidths: bytes per second of each worker's link to the parameter server, [n].
            cache_rows: rows that each worker's cache holds, [n]; with several tables, its bytes are those of this
                number of rows of the first.
            worker_limits: the least and the most samples that each worker takes per iteration, [n], beside the job's
                limits; none: any number.
            members: the workers that train; None: all. Replicated rows are theirs.
            epoch: the membership that the plans are for; copied into them.
            mechanism: decides in place of the one that `job.mechanism` names.
            snapshot: what `checkpoint` returned.
            warm: caches are as they were at the snapshot, which needs the same caches and policy; else they begin
                empty, and only the rows' versions are taken over.
            rests: workers rest while they have no samples, if the job lets them; see esd.dispatcher.core.resting.

        Raises:
            InvalidArgument: unknown mechanism, solver or policy, a wrong number of links or caches, or a link
                or cache that is not positive; a cache that replicated rows fill; workloads that workers do not take; a
                snapshot that is damaged or does not fit.
        """
        for name, values in (("bandwidths", bandwidths), ("cache_rows", cache_rows)):
            if len(values) != job.workers:
                raise InvalidArgument(f"{len(values)} {name} given for {job.workers} workers")
        for worker, rows in enumerate(cache_rows):
            if rows < 1:
                raise InvalidArgument(f"cache_rows of worker {worker} is {rows}, it must be at least 1")
        self.job = job = with_chosen_sum(job, bandwidths)
        self.warm = warm
        self.members = members or WorkerSet.all_of(job.workers)
        self.bandwidths = tuple(bandwidths)
        self.cache_rows = tuple(cache_rows)
        self.worker_limits = tuple(worker_limits)
        self._sizes = RowSizes(job.tables, job.features)
        self._links = MeasuredLinks(bandwidths, slowest_link(self._sizes.of_sample))
        self.cost_model = self._cost_model()
        self._evictions = EvictionRisk(job.workers) if job.options.eviction_term else None
        caches = [self._sizes.cache_room(rows) for rows in cache_rows]
        self._sync = sync_planning(job, SyncContext(bandwidths, cache_rows, self.members, self._sizes))
        least, most = _worker_limits(job, worker_limits)
        self._resting = Resting(job, self.members, bandwidths, allowed=rests)
        self._balancing: Balancing | None = None
        if job.workload_limits is not None:
            taken = self._sizes.cache_room(job.sync.pinned_rows) + self._sizes.lists_room(job)
            free = [room - taken for room in caches]
            returns = self._resting.return_sums
            self._balancing = Balancing(job, (least, most), self._sizes, free, self.cost_model, returns)
        self._necessary = NecessaryTime() if job.auto_budget else None
        self._admission = Admission(job) if job.admit_afters else None
        self._epoch = epoch
        self.rests = rests
        self._mechanism = mechanism or get_mechanism(job)
        try:
            self._engine = engine_of(job.workers).Engine(
                caches,
                job.policy,
                table_sizes=self._sizes.of_tables,
                max_rows=job.rows_kept,
                row_ttls=job.row_ttls,
                window=0 if job.knows_all_rows else job.window,
                spare_rows=_MANY_SPARE_ROWS if job.mechanism == "history" else _SPARE_ROWS,
                gradient_shares=self._sizes.gradient_shares,
                value_shares=self._sizes.value_shares,
                sync=self._sync.way(),
            )
            if snapshot is not None:
                self._engine.restore(snapshot.engine, warm)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._learned = self._learners()
        self.knows_workers = snapshot is not None and self._learned.load(snapshot.learned)
        self.cost_model = self._cost_model()

    def observe(self, feedback: Feedback) -> None:
        """Records the workers' measurements; decisions after this call take them into account.

        It does nothing to a job with fixed workloads and links as registered that pushes nothing ahead and has no
        budget that follows the training.
        """
        if self._necessary is not None:
            self._necessary.observe(feedback.necessary_seconds)
        self._sync.observe(feedback)
        if self._balancing is not None:
            self._balancing.observe(feedback.seconds, feedback.dense_seconds)
        if self.job.measured_links and self._links.update(feedback.bandwidths):
            self.cost_model = self._cost_model()

    def found(self, batch: SampleBatch) -> BatchIds:
        """Looks the ids of a batch up, for this planner and all others of the same number of workers."""
        return engine_of(self.job.workers).BatchIds(*batch.id_columns)

    @property
    def workloads(self) -> tuple[int, ...]:
        """m_j, the samples of each worker in the next batch of full size, [n]; where they follow times, at first."""
        return self.job.workloads if self._balancing is None else self._balancing.workloads

    @property
    def lookahead(self) -> int:
        """How many batches beyond the one to plan are looked at."""
        return max(self._mechanism.lookahead, self._sync.lookahead)

    def plan(
        self,
        batch: SampleBatch,
        lookahead_batches: Sequence[SampleBatch] = (),
        efforts: Sequence[int] | None = None,
        ids: BatchIds | None = None,
    ) -> Decision:
        """Assigns the next global batch and advances the mirrored caches by one iteration.

        A batch shorter than the job's batch size (the end of a finite stream) is shared out in proportion to the
        workloads.

        Args:
            batch: 1..batch_size samples.
            lookahead_batches: the `lookahead` batches after it; fewer if the stream ends before.
            efforts: of the decision, when it is made again; no clock counts then.
            ids: of the batch, where other planners plan it, too. A job with admission makes its own.

        Raises:
            InvalidArgument: the batch is empty, too long, or has another number of fields; an id names a table that the
                job has not.
            ResourceExhausted: a cache is smaller than the distinct rows its worker trains in this iteration; the batch
                brings more rows than the table may have, or trains more if it forgets others.
        """
        self._check(batch)
        for later in lookahead_batches:
            self._check(later)
        started = time.perf_counter()
        sites, capacities = self._placed(batch, lookahead_batches)
        admitted, trained = None, batch
        try:
            if self._admission is not None:
                admitted = self._admission.admit(batch)
                lookahead_batches = [self._admission.expect(later) for later in lookahead_batches]
                trained, ids = admitted.samples, None
            self._sync.announce(self._engine, self._with_all_lists(lookahead_batches))
            self._engine.prepare(ids or self.found(trained))
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        self._check_rows()
        indexed = time.perf_counter()
        iteration = self._engine.iteration
        budget = self._budget_seconds
        decision_time = DecisionTime(indexed + budget, efforts)
        problem = DispatchInput(
            engine=self._engine,
            batch=trained,
            capacities=capacities,
            iteration=iteration,
            link_costs=self.cost_model.link_costs,
            sizes=self._sizes,
            eviction_costs=self._evictions.costs(self.cost_model.link_costs) if self._evictions else None,
            lookahead=tuple(lookahead_batches[: self._mechanism.lookahead]),
            time=decision_time,
            sites=sites,
        )
        if self._balancing is None or len(batch) < self.job.batch_size:
            assigned = self._mechanism.decide(problem)
        else:
            assigned = self._balancing.assign(self._mechanism, problem, self.cost_model)
        decided = time.perf_counter()
        self._check_stays(assigned.workers, sites)
        with_lists = self._prepare_lists(batch, assigned.workers)
        try:
            columns = self._engine.commit(
                assigned.workers if with_lists is None else with_lists.assignment,
                self._sync.push_limits(),
                None if admitted is None else admitted.ids,
            )
        except CacheTooSmall as error:
            raise ResourceExhausted(str(error)) from None
        counts = columns.counts
        if self._evictions:
            self._evictions.update(columns, self._sizes)
        direct_rows, direct_bytes = self._sync.direct(columns)
        planned = time.perf_counter()
        decision = Decision(
            iteration=iteration,
            assignment=assigned.workers,
            batch=batch,
            admitted=admitted,
            with_lists=with_lists,
            epoch=self._epoch,
            columns=columns,
            operations=Operations(counts[0], counts[1] + counts[2], counts[3] + counts[4]),
            moved_bytes=self._sizes.moved_bytes(columns),
            unsent_bytes=self._sizes.unsent_bytes(columns),
            reduced_bytes=self._sync.reduced_bytes(columns),
            direct_rows=direct_rows,
            direct_bytes=direct_bytes,
            sync_figures=self.job.sync.figures.of_counts(columns.figures.tolist()),
            cost_model=self.cost_model,
            expected_cost_seconds=assigned.expected_cost * self.cost_model.unit_seconds,
            worker_lookups=counts[6],
            worker_hits=counts[7],
            forgotten_rows=columns.forgotten - columns.expired,
            expired_rows=columns.expired,
            roles=self._resting.plan(np.bincount(assigned.workers, minlength=self.job.workers)),
            held_back=self._balancing.held_back if self._balancing else np.zeros(self.job.workers, np.int32),
            solver=assigned.solver,
            gap=assigned.gap,
            budget_seconds=budget,
            efforts=decision_time.efforts,
            seconds={
                "index": indexed - started,
                "score": assigned.score_seconds,
                "assign": decided - indexed - assigned.score_seconds,
                "plan": planned - decided,
            },
        )
        if self._balancing is not None:
            self._balancing.learn(decision)
        self._sync.learn(decision)
        if self._necessary is not None:
            self._necessary.learn(decision.seconds["index"] + decision.seconds["plan"])
        return decision

    def _placed(
        self, batch: SampleBatch, lookahead_batches: Sequence[SampleBatch]
    ) -> tuple[Sites | None, NDArray[np.int32]]:
        """Returns the sites of a batch's samples, if they stay at them, and the samples of each worker, int32 [n]."""
        of_samples, workers = sites_of_samples(batch, self.job), self.job.worker_sites
        if of_samples is None or workers is None:
            return None, np.array(scale_workloads(self.workloads, len(batch)), np.int32)
        seen = lookahead_batches[: self._mechanism.lookahead]
        later = tuple(workers.of_samples(each.sites) for each in seen if each.sites is not None)
        sites = Sites(of_samples, workers.numbers, later)
        counts = np.bincount(sites.of_samples, minlength=len(workers.names)).tolist()
        capacities = workers.workloads(counts, self.workloads)
        for slot, (samples, (_, most)) in enumerate(zip(capacities.tolist(), self.worker_limits, strict=False)):
            if samples > most:
                raise ResourceExhausted(
                    f"iteration {self._engine.iteration} has {samples} samples for worker {slot} of site "
                    f"{workers.of_workers[slot]!r}, which takes {most} (ESD_WORKER_MOST_SAMPLES): give the site more "
                    "workers, or make the batch smaller"
                )
        return sites, capacities

    def _check_stays(self, assignment: NDArray[np.int32], sites: Sites | None) -> None:
        """Refuses an assignment that takes a sample away from its site, of any mechanism."""
        if sites is None:
            return
        away = sites.of_workers[assignment] != sites.of_samples
        if away.any():
            sample = int(np.argmax(away))
            names = self.job.worker_sites.names  # type: ignore[union-attr] # there are sites
            raise InvalidArgument(
                f"iteration {self._engine.iteration}: sample {sample} is of site "
                f"{names[sites.of_samples[sample]]!r}, and was assigned to worker {assignment[sample]} of site "
                f"{names[sites.of_workers[assignment[sample]]]!r} (mechanism {self.job.mechanism!r})"
            )

    def _prepare_lists(self, batch: SampleBatch, assignment: NDArray[np.int32]) -> SamplesWithLists | None:
        """Has the engine prepare the batch again, with the lists of negatives that its assignment needs, if any.

        The mechanism has decided without them: every worker needs the lists of its chunks under any assignment.
        """
        job = self.job
        if job.negatives is None:
            return None
        with_lists = job.negatives.with_lists(batch, assignment, job.seed, self._engine.iteration)
        self._engine.prepare(self.found(with_lists.samples))
        self._check_rows()
        return with_lists

    def _with_all_lists(self, later: Sequence[SampleBatch]) -> Sequence[SampleBatch]:
        """Returns the batches after the one to plan with the lists of negatives of all their chunks."""
        job, negatives = self.job, self.job.negatives
        if negatives is None or not self._sync.lookahead:
            return later
        return [
            negatives.with_lists(each, np.zeros(len(each), np.int32), job.seed, iteration).samples
            for iteration, each in enumerate(later, self._engine.iteration + 1)
        ]

    def flush(self) -> tuple[FlushPlan, ...]:
        """Plans, for each worker, the push of all that the parameter server lacks; afterwards every row is clean."""
        return self._flushes(checkpoint=False)

    def checkpoint(self) -> tuple[tuple[FlushPlan, ...], Snapshot]:
        """Plans the flush of a checkpoint before the next iteration, and takes a snapshot of the state after it."""
        return self._flushes(checkpoint=True), Snapshot(self._engine.snapshot(), self._learned.save())

    def _flushes(self, *, checkpoint: bool) -> tuple[FlushPlan, ...]:
        keeper = self._resting.keeper
        return tuple(
            flush_plan(columns, self._epoch, checkpoint=checkpoint, stores_dense=slot == keeper)
            for slot, columns in enumerate(self._engine.flush())
        )

    def reloads(self) -> tuple[Reload, ...]:
        """Returns the content for caches of workers that start empty. Call it before the first `plan`."""
        checkpoint = self._engine.iteration
        return tuple(reload_plan(columns, checkpoint) for columns in self._engine.contents())

    @property
    def rows(self) -> int:
        """How many rows the planner knows: all rows of the tables, if the job limits them or their time to live.

        Else these are the rows that workers cache or have cached recently, and some more.
        """
        return self._engine.stats()["ids"]

    @property
    def infrequency(self) -> NDArray[np.float64] | None:
        """The degree of infrequency of every feature's rows, float64 [F], where the mechanism has it (Herald §3.2).

        It is the same array until the mechanism ranks the features anew.
        """
        return self._mechanism.infrequency if isinstance(self._mechanism, LaiaAdaptive) else None

    @property
    def _budget_seconds(self) -> float:
        """Time for the next assignment; infinite without a limit."""
        if self._necessary is not None:
            return self._necessary.seconds
        return self.job.budget_seconds or math.inf

    def _learners(self) -> Learned:
        """Returns the parts of the planner that learn from one iteration for later ones."""
        of_workers: dict[str, Learner | None] = {
            "links": self._links if self.job.measured_links else None,
            "evictions": self._evictions,
            "balancing": self._balancing,
        } | self._sync.learner
        of_stream = {self.job.mechanism: self._mechanism} if isinstance(self._mechanism, Learner) else {}
        limits = self.worker_limits or [(0, self.job.batch_size)] * self.job.workers
        registered = np.column_stack([self.bandwidths, self.cache_rows, np.array(limits)]).astype(np.float64)
        of_samples = {} if self._admission is None else {ADMISSION: self._admission}
        present = {name: each for name, each in of_workers.items() if each is not None}
        return Learned(registered, present, of_stream, of_samples)

    def _cost_model(self) -> CostModel:
        return CostModel(self._sizes.unit_bytes, self._links.in_use.tolist(), self._sizes.of_sample)

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
                "raise max_rows (--max-rows), hash the ids to fewer, or let old rows go (--at-max-rows forget)"
            )

    def _check(self, batch: SampleBatch) -> None:
        k = len(batch)
        if not 1 <= k <= self.job.batch_size:
            raise InvalidArgument(f"the batch has {k} samples, it must have 1..{self.job.batch_size}")
        if batch.fields != self.job.fields or batch.ids.dtype != np.uint64:
            raise InvalidArgument(
                f"the batch has {batch.ids.dtype} ids of {batch.fields} features, the job needs uint64 ids of "
                f"{self.job.fields}"
            )


def check_job(job: JobSpec, cache_rows: Sequence[int] = ()) -> None:
    """Refuses a job that cannot be dispatched here, before anything of it starts.

    Args:
        job: the job.
        cache_rows: rows that each worker's cache will hold, [n]; none: that is not known yet.

    Raises:
        InvalidArgument: the mechanism, the cache policy or another name is unknown; replicated rows fill a cache.
        FailedPrecondition: the job asks for a device or library that this machine lacks.
    """
    Planner(job, [1.0] * job.workers, cache_rows or [job.sync.pinned_rows + 1] * job.workers)


def _worker_limits(job: JobSpec, of_workers: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the least and the most samples of each worker, int32 [n], from the job's limits and the worker's own.

    Raises:
        InvalidArgument: fixed workloads are not within them.
    """
    limits = np.array(of_workers or [(0, job.batch_size)] * job.workers, np.int32)
    for worker, (m, (least, most)) in enumerate(zip(job.workloads, limits.tolist(), strict=True)):
        if job.workload_limits is None and m > 0 and not least <= m <= most:
            raise InvalidArgument(
                f"worker {worker} would train {m} samples per iteration, and takes {least}..{most}: choose other"
                " --workloads, or balanced ones"
            )
    least, most = job.workload_limits or (0, job.batch_size)
    return np.maximum(limits[:, 0], least), np.minimum(limits[:, 1], most)
