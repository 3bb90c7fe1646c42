"""The totals of a job's decisions and reports, and their history."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.progress import Progress
from esd.services.domain.dense_roles import resting
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import IterationReport

_RECENT_DECISIONS = 4096
_MOST_POINTS = 600  # about the number that a wide screen can show apart
_FEWEST_POINTS = 20  # points kept of a fast job
_CLOSEST_SECONDS = 0.25  # shortest mean distance of points, since each computes the AUC of all samples
_SAVED = (
    "cost_seconds",
    "makespan_seconds",
    "expected_cost_seconds",
    "lookups",
    "hits",
    "forgotten_rows",
    "expired_rows",
    "admitted_rows",
    "initial_reads",
)


@dataclass(frozen=True, slots=True)
class Point:
    """A job's totals after `iterations` confirmed iterations; their differences cover the time between.

    Differences have a meaning within an epoch only: between two epochs lie the recovery and the iterations that are
    trained again.

    Attributes:
        iterations: the number of iterations that all workers have confirmed.
        seconds: the time since the first plan.
        samples: the number of samples of the confirmed iterations.
        loss: mean progressive logistic loss over these samples.
        auc: progressive area under the ROC curve over these samples; NaN until both labels were seen.
        planned: the number of planned iterations, confirmed or not.
        decision_seconds: the time of the decisions on the planned iterations.
        cost_seconds: the time of their operations on the links.
        lookups: the number of (row, worker) pairs that they need.
        hits: the number of lookups that find the latest version in the cache.
        begins: whether an epoch begins here, with `iterations` as its first.
    """

    iterations: int
    seconds: float
    samples: int
    loss: float
    auc: float
    planned: int
    decision_seconds: float
    cost_seconds: float
    lookups: int
    hits: int
    begins: bool = False


class PointHistory:
    """Evenly spaced points of a job of any length, in bounded memory.

    The history keeps one point per `step` iterations. When it has too many points, or they lie too close together in
    time, it drops every other point and doubles the step. As points are totals, averages between the remaining points
    of an epoch stay exact; the beginning of an epoch stays as long as another point of that epoch does.

    Args:
        most_points: the largest number of points.

    Attributes:
        points: the points, in order.
    """

    def __init__(self, most_points: int = _MOST_POINTS) -> None:
        self._most_points = most_points
        self._step = 1
        self.points: list[Point] = []

    def wants(self, iterations: int) -> bool:
        """Returns whether the history keeps a point at this number of confirmed iterations."""
        return iterations % self._step == 0

    def begin(self, origin: Point) -> None:
        """Begins an epoch, and drops the points after its first iteration: these iterations are trained again."""
        kept = [point for point in self.points if point.iterations <= origin.iterations]
        self.points = self._followed([*kept, origin])

    def add(self, point: Point) -> None:
        """Adds a point that `wants` has accepted; points must come in order."""
        self.points.append(point)
        count = len(self.points)
        close = count >= 2 * _FEWEST_POINTS and point.seconds < count * _CLOSEST_SECONDS
        if count > self._most_points or close:
            self._step *= 2
            self.points = self._followed([kept for kept in self.points if kept.begins or self.wants(kept.iterations)])

    @staticmethod
    def _followed(points: list[Point]) -> list[Point]:
        """Returns the points without the beginnings of former epochs of which no other point is left."""
        return [
            each
            for each, after in pairwise([*points, None])
            if each is not None and not (each.begins and after is not None and after.begins)
        ]


class JobTotals:
    """Totals of one job.

    Attributes:
        cost_seconds: the time of all planned operations on their links (ESD eq. 4).
        makespan_seconds: the sum over iterations of the busiest link's time.
        expected_cost_seconds: the mechanism's own estimate of the cost.
        lookups: the number of (row, worker) pairs that training needed.
        hits: the number of lookups that found the latest version in the cache.
        forgotten_rows: the number of rows removed from the table to keep it within its limit.
        expired_rows: the number of rows removed from the tables because their time to live was over.
        admitted_rows: the number of ids admitted to the tables.
        initial_reads: the number of initial rows read, once per iteration, of ids that were not admitted then.
        sync_figures: the figures of the way to synchronise.
        plan_bytes: the bytes of all workers' plans, since this dispatcher started the job.
        plan_seconds: the time of these plans on their links, not included in the cost.
        reduced_seconds: the time of the gradients of replicated rows on the workers' links, not included in the cost.
        worker_lookups: int64 [n], the lookups by worker slot.
        worker_hits: int64 [n], the hits by worker slot.
        workloads: int32 [n], m_j: samples of each worker in the latest planned iteration.
        held_back: int32 [n], the samples for whose rows a worker's cache has room; 0 if the cache does not limit it.
        rests: bool [n], which workers rest in the latest planned iteration.
        progress: loss and AUC of the iterations that all workers have confirmed.
        history: earlier values of these totals.
    """

    def __init__(self, job: JobSpec) -> None:
        self.cost_seconds = 0.0
        self.makespan_seconds = 0.0
        self.expected_cost_seconds = 0.0
        self.lookups = 0
        self.hits = 0
        self.forgotten_rows = 0
        self.expired_rows = 0
        self.admitted_rows = 0
        self.initial_reads = 0
        self.sync_figures = job.sync.figures()
        self.plan_bytes = 0
        self.plan_seconds = 0.0
        self.reduced_seconds = 0.0
        self.worker_lookups = np.zeros(job.workers, np.int64)
        self.worker_hits = np.zeros(job.workers, np.int64)
        self.workloads = np.array(job.workloads, np.int32)
        self.held_back = np.zeros(job.workers, np.int32)
        self.rests = np.zeros(job.workers, np.bool_)
        self.progress = Progress(job.workers, len(job.labels))
        self.history = PointHistory()
        self._confirmed = 0  # iterations, by all workers
        self._between_epochs = True  # nothing is planned since the beginning, or since the return to a checkpoint
        self._planned = 0
        self._decision_total = 0.0
        self._decision_seconds = np.zeros(_RECENT_DECISIONS)  # a ring: decision i at i modulo its length
        self._seconds_before = 0.0
        self._first_plan: float | None = None
        self._last_confirmation: float | None = None

    def add_decision(self, decision: Decision) -> None:
        """Adds a decision that is about to be published."""
        if self._between_epochs:
            self._begin_epoch(decision.iteration)
        self.cost_seconds += decision.cost_seconds
        self.makespan_seconds += decision.makespan_seconds
        self.expected_cost_seconds += decision.expected_cost_seconds
        self.lookups += decision.lookups
        self.hits += decision.hits
        self.forgotten_rows += decision.forgotten_rows
        self.expired_rows += decision.expired_rows
        self.admitted_rows += decision.admitted_rows
        self.initial_reads += decision.initial_reads
        self.sync_figures += decision.sync_figures
        self.plan_bytes += decision.plan_bytes
        self.plan_seconds += decision.plan_seconds
        self.reduced_seconds += decision.reduced_seconds
        self.workloads = decision.workloads
        self.held_back = decision.held_back
        self.rests = resting(decision.roles)
        self.worker_lookups += decision.worker_lookups
        self.worker_hits += decision.worker_hits
        self._decision_seconds[self._planned % _RECENT_DECISIONS] = decision.decision_seconds
        self._decision_total += decision.decision_seconds
        self._planned += 1

    def add_report(self, slot: int, report: IterationReport) -> bool:
        """Adds a worker's report. Returns whether all workers have confirmed its iteration now."""
        self._last_confirmation = time.monotonic()
        complete = self.progress.add(slot, report)
        if complete:
            self._confirmed = report.iteration + 1
            if self.history.wants(self._confirmed):
                self.history.add(self._point())
        return complete

    def course(self) -> list[Point]:
        """Returns the history with the present totals as its last point."""
        points = self.history.points
        if self._between_epochs or points[-1].iterations == self._confirmed:
            return list(points)
        return [*points, self._point()]

    def _begin_epoch(self, iteration: int) -> None:
        """Begins the history of an epoch, whose first decision is about to be added."""
        now = time.monotonic()
        if self._first_plan is None:
            self._first_plan = now
        self._confirmed, self._between_epochs = iteration, False
        seconds = self._seconds_before + now - self._first_plan
        self.history.begin(replace(self._point(), seconds=seconds, begins=True))

    def _point(self) -> Point:
        """Returns the present totals as a point at the number of confirmed iterations."""
        return Point(
            iterations=self._confirmed,
            seconds=self.training_seconds,
            samples=self.progress.samples,
            loss=self.progress.loss,
            auc=self.progress.auc,
            planned=self._planned,
            decision_seconds=self._decision_total,
            cost_seconds=self.cost_seconds,
            lookups=self.lookups,
            hits=self.hits,
        )

    def save_planned(self) -> dict[str, float]:
        """Returns the totals of the planned iterations, for `rewind_to`."""
        figures = {name: getattr(self, name) for name in _SAVED} | {"training_seconds": self.training_seconds}
        return figures | self.sync_figures.save()

    def rewind_to(self, planned: dict[str, float], progress: bytes | None, workers: int) -> None:
        """Restores the totals and the progress of a checkpoint.

        Args:
            planned: the result of `save_planned` at the checkpoint; empty means the beginning of the job.
            progress: the result of `Progress.save` at the checkpoint; None means the beginning of the job.
            workers: the number of workers that report an iteration from now on.
        """
        for name in _SAVED:
            setattr(self, name, type(getattr(self, name))(planned.get(name, 0)))
        self.sync_figures = self.sync_figures.load(planned)
        self.progress.load(progress, workers)
        self._between_epochs = True
        if self._first_plan is None:  # an earlier dispatcher planned these iterations
            self._seconds_before = planned.get("training_seconds", 0.0)

    def show_finished(self, planned: dict[str, float], progress: bytes | None, workers: int) -> None:
        """Restores the totals of a finished job; arguments as in rewind_to.

        It may have had another number of workers than the job that asks, and none of them has samples any more.
        """
        self.rewind_to(planned, progress, workers)
        self.workloads, self.held_back = np.zeros((2, workers), np.int32)
        self.rests = np.zeros(workers, np.bool_)
        self.worker_lookups, self.worker_hits = np.zeros((2, workers), np.int64)

    def decision_seconds(self, *quantiles: float) -> list[float]:
        """Returns quantiles of the latest 4096 decision times; 0 before the first."""
        known = self._decision_seconds[: self._planned]
        return np.quantile(known, quantiles).tolist() if self._planned else [0.0] * len(quantiles)

    @property
    def plan_bytes_per_iteration(self) -> float:
        """The mean size of an iteration's plans, all workers' together; 0 before the first."""
        return self.plan_bytes / self._planned if self._planned else 0.0

    @property
    def plan_seconds_per_iteration(self) -> float:
        """The mean time of an iteration's plans on their links, all workers' together; 0 before the first."""
        return self.plan_seconds / self._planned if self._planned else 0.0

    @property
    def reduced_seconds_per_iteration(self) -> float:
        """The mean time of an iteration's gradients of replicated rows, all workers' together; 0 before the first."""
        return self.reduced_seconds / self._planned if self._planned else 0.0

    @property
    def training_seconds(self) -> float:
        """The time from the first published plan to the last confirmation."""
        if self._first_plan is None or self._last_confirmation is None:
            return self._seconds_before
        return self._seconds_before + self._last_confirmation - self._first_plan
