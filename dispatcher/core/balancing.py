"""Dispatch under balanced workloads: a mechanism decides, and the workloads that it is given follow what it decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import CostModel, Operations, RowSizes
from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.feedback import ComputeTimes
from esd.dispatcher.core.learned import Arrays, of, within
from esd.dispatcher.core.mechanisms import Assignment, DispatchInput, Mechanism, WorkloadLimits
from esd.dispatcher.core.workloads import BalancedWorkloads
from esd.services.domain.jobs import JobSpec

_REFINEMENTS = 3  # further decisions on one batch, at most
_EVEN = 1.05  # the slowest worker's time, relative to the mean, that needs no further decision
_GAIN = 0.99  # of the slowest worker's time; a refinement that saves less is the last
_SMOOTHING = 0.2  # weight of the newest iteration in evictions, and in how many samples fit a cache
_FILLED = 0.95  # share of a cache that one iteration's rows should fill at most
_MISSING_SHARE = 0.5  # of a sample's rows that are expected to move before anything is known


class Balancing:
    """Chooses the workloads of one job's iterations.

    It starts at the shares that links, expected traffic and a guess of the computation imply. Each batch is assigned
    under the present workloads; what the assignment would take each worker is computed, and while that is uneven, the
    batch is assigned anew under better ones. Feedback tells what computing takes.

    No worker gets more samples than its cache has room for, as far as the stream's rows per sample tell; an assignment
    whose rows would not fit is never the one that counts if there is another.
    """

    def __init__(
        self,
        job: JobSpec,
        limits: tuple[NDArray[np.int32], NDArray[np.int32]],
        sizes: RowSizes,
        rooms: Sequence[int],
        costs: CostModel,
    ) -> None:
        """Starts without feedback.

        Args:
            job: the job, whose workloads it goes back to where nothing else fits.
            limits: the least and the most samples of each worker, int32 [n] and [n].
            sizes: what the rows of a sample need.
            rooms: the room of each cache in units of row size, [n].
            costs: the links as they are at first.

        Raises:
            InvalidArgument: no workloads within the limits sum to the batch size.
        """
        self._job = job
        self._rooms = np.asarray(rooms, np.float64)
        self._surely_fits = self._rooms // sizes.of_sample  # samples, [n]
        self._fits = np.full(job.workers, np.inf)  # samples, [n], as the stream's rows tell
        self._compute_times = ComputeTimes(job.workers)
        moving = costs.transfer_seconds * sizes.of_sample * _MISSING_SHARE
        self._guess = float(moving.min())  # seconds of computation per sample, until feedback tells
        self._evicting = np.zeros(job.workers)  # seconds of evict pushes per sample, [n]
        self._balance = BalancedWorkloads(
            job.batch_size,
            limits[0].tolist(),
            limits[1].tolist(),
            (moving + self._guess) * job.batch_size / job.workers,
        )

    @property
    def workloads(self) -> tuple[int, ...]:
        """Samples of each worker with which the next batch begins, [n]."""
        return tuple(self._balance.current(self._most()).tolist())

    @property
    def held_back(self) -> NDArray[np.int32]:
        """Samples beyond which a worker would get more if its cache had room for them, int32 [n]; 0: there is room."""
        most, workloads = self._most(), self._balance.current()
        return np.where(workloads > most, most, 0).astype(np.int32)

    def observe(self, seconds: NDArray[np.float64]) -> None:
        """Takes in how long every worker took for the earliest iteration not yet observed, float64 [n]."""
        known = self._compute_times.known
        self._compute_times.update(seconds)
        if not known:
            self._balance.forget()  # paces were of the guess

    def assign(self, mechanism: Mechanism, problem: DispatchInput, costs: CostModel) -> Assignment:
        """Assigns a batch of full size; the best of a few trials counts whose rows fit the caches."""
        best: Assignment | None = None
        least_seconds = np.inf
        capacities = self._balance.current(self._most())
        for trial in range(_REFINEMENTS + 1):
            assigned = mechanism.decide(
                replace(problem, capacities=capacities, limits=self._limits(capacities, costs.unit_seconds))
            )
            workloads = np.bincount(assigned.workers, minlength=len(capacities)).astype(np.int32)
            trained, moved = problem.engine.preview(assigned.workers)
            fits = bool((trained <= self._rooms).all())
            self._learn_room(trained, workloads, too_many=not fits)
            seconds = costs.transfer_seconds * moved + (self._computing + self._evicting) * workloads
            slowest = float(seconds.max())
            gained = not fits or slowest < _GAIN * least_seconds
            if fits and slowest < least_seconds:
                best, least_seconds = assigned, slowest
            even = fits and slowest <= _EVEN * float(seconds.mean())
            if trial == _REFINEMENTS or even or not gained or problem.time.over():
                break
            capacities = self._balance.refine(workloads, seconds, self._most())
        return best if best is not None else self._cautious(mechanism, problem)

    def learn(self, decision: Decision) -> None:
        """Takes in what an iteration is planned to move."""
        workloads, costs = decision.workloads, decision.cost_model
        self._compute_times.plan(decision.link_seconds, workloads)
        if len(decision.assignment) < self._job.batch_size:
            return
        evicted = replace(Operations.none(len(workloads)), evict_push=decision.moved_bytes.evict_push)
        evicting = costs.link_seconds(evicted) / np.maximum(workloads, 1)
        self._evicting += _SMOOTHING * (evicting - self._evicting)
        seconds = decision.link_seconds + self._computing * workloads
        self._balance.update(np.maximum(seconds, 0.0), workloads)

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns what the workloads follow, for `load`."""
        parts = {"paces": self._balance.save(), "computing": self._compute_times.save()}
        return within(parts) | {"evicting": self._evicting, "fits": self._fits}

    def load(self, saved: Arrays) -> None:
        """Goes on with what was saved, for the same workers."""
        self._balance.load(of(saved, "paces"))
        self._compute_times.load(of(saved, "computing"))
        self._evicting, self._fits = saved["evicting"], saved["fits"]

    @property
    def _computing(self) -> NDArray[np.float64]:
        """Seconds per sample beside what the cost model says of links, float64 [n]; negative where that is too much."""
        if self._compute_times.known:
            return self._compute_times.sample_seconds
        return np.full(self._job.workers, self._guess)

    def _most(self) -> NDArray[np.float64]:
        """Upper limits, float64 [n]: of the workers, and of what fits their caches; together they have room for k."""
        fitting = np.floor(np.maximum(self._fits, self._surely_fits))
        most = np.maximum(np.minimum(self._balance.most, fitting), self._balance.least)
        return most if most.sum() >= self._job.batch_size else self._balance.most

    def _limits(self, capacities: NDArray[np.int32], unit_seconds: float) -> WorkloadLimits:
        least, most = self._balance.least.astype(np.int32), self._most().astype(np.int32)
        sample_costs = np.maximum(self._computing, 0.0) / unit_seconds
        return WorkloadLimits(np.minimum(least, capacities), np.maximum(most, capacities), sample_costs)

    def _learn_room(self, trained: NDArray[np.int64], workloads: NDArray[np.int32], *, too_many: bool) -> None:
        """Notes how many samples fit: if more did, they would share more rows, so proportion is on the safe side."""
        seen = trained > 0
        fits = np.where(seen, _FILLED * self._rooms * workloads / np.maximum(trained, 1), self._fits)
        smooth = np.isfinite(self._fits) & ~(too_many & (trained > self._rooms))
        self._fits[smooth] += _SMOOTHING * (fits[smooth] - self._fits[smooth])
        self._fits[~smooth] = fits[~smooth]

    def _cautious(self, mechanism: Mechanism, problem: DispatchInput) -> Assignment:
        """Decides under workloads whose rows fit however few they share; under the job's own if there are none."""
        most = np.maximum(np.minimum(self._balance.most, self._surely_fits), self._balance.least)
        workloads = np.array(self._job.workloads, np.int32)
        if most.sum() >= self._job.batch_size:
            workloads = self._balance.current(most)
        return mechanism.decide(replace(problem, capacities=workloads, limits=None))
