"""Dispatch under balanced workloads: a mechanism assigns samples, and the workloads follow from its assignments."""

from __future__ import annotations

from collections import deque
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
from esd.dispatcher.core.trials import Trials
from esd.dispatcher.core.workloads import BalancedWorkloads
from esd.services.domain.dense_roles import DenseRole, resting
from esd.services.domain.jobs import JobSpec

_REFINEMENTS = 3  # further decisions on one batch, at most
_EVEN = 1.05  # the slowest worker's time, relative to the mean, at which refinement stops
_GAIN = 0.99  # the slowest worker's time after a refinement, relative to before; a higher ratio ends the refinements
_SMOOTHING = 0.2  # weight of the newest iteration in the eviction times, and in the numbers of samples that fit a cache
_FILLED = 0.95  # largest share of a cache that the rows of one iteration should fill
_MISSING_SHARE = 0.5  # assumed share of a sample's rows that move, before the first feedback


class Balancing:
    """Chooses the workloads of one job's iterations.

    The first workloads follow from the links, the expected traffic and a guess of the computing time. Each batch is
    assigned under the present workloads, and the time of every worker under this assignment is computed. While these
    times are uneven, the batch is assigned again under better workloads. Feedback provides the computing times, and
    the times of the dense sums on the links: a worker whose link is busy with them gets few samples, or none, and then
    rests. Now and then it is tried again.

    No worker gets more samples than its cache has room for, estimated from the rows per sample of the stream. An
    assignment whose rows do not fit is used only if no other assignment exists.
    """

    def __init__(
        self,
        job: JobSpec,
        limits: tuple[NDArray[np.int32], NDArray[np.int32]],
        sizes: RowSizes,
        rooms: Sequence[int],
        costs: CostModel,
        return_sums: int,
    ) -> None:
        """Starts without feedback.

        Args:
            job: the job, whose own workloads are the fallback when no others fit.
            limits: the smallest and the largest number of samples of each worker, int32 [n] and [n].
            sizes: the sizes of the rows of a sample.
            rooms: the room of each cache in units of row size, [n].
            costs: the cost model of the registered links.
            return_sums: see `Trials`.

        Raises:
            InvalidArgument: no workloads within the limits sum to the batch size.
        """
        self._job = job
        self._rooms = np.asarray(rooms, np.float64)
        self._surely_fits = self._rooms // sizes.of_sample  # samples, [n]
        self._fits = np.full(job.workers, np.inf)  # samples, [n], estimated from the stream
        self._compute_times = ComputeTimes(job.workers)
        moving = costs.transfer_seconds * sizes.of_sample * _MISSING_SHARE
        self._guess = float(moving.min())  # seconds of computation per sample, until the first feedback
        self._summing = np.zeros(job.workers)  # seconds of dense sums on the link per iteration, [n]
        self._roles: deque[NDArray[np.uint32]] = deque()  # in the sums of planned iterations, [n] of DenseRole
        self._rested = np.zeros(job.workers, np.bool_)  # whether a worker has rested since its sums were measured
        self._trials = Trials(job.workers, return_sums)
        self._evicting = np.zeros(job.workers)  # seconds of evict pushes per sample, [n]
        self._balance = BalancedWorkloads(
            job.batch_size,
            limits[0].tolist(),
            limits[1].tolist(),
            (moving + self._guess) * job.batch_size / job.workers,
        )
        self._least = self._balance.least  # without trials

    @property
    def workloads(self) -> tuple[int, ...]:
        """The workloads under which the next batch is assigned first, [n] samples."""
        return tuple(self._balance.current(self._most(), self._summing).tolist())

    @property
    def held_back(self) -> NDArray[np.int32]:
        """The samples for whose rows a cache has room, if that limits its worker, int32 [n]; 0 if it does not."""
        most, workloads = self._most(), self._balance.current(fixed=self._summing)
        return np.where(workloads > most, most, 0).astype(np.int32)

    def observe(self, seconds: NDArray[np.float64], summing: NDArray[np.float64] | None) -> None:
        """Records the workers' times in the earliest iteration not yet observed.

        Args:
            seconds: for rows, plans and computation, float64 [n].
            summing: of the dense sums on the links, float64 [n]; None: not known. The time of a worker that
                rests, or carries the state of a return, is ignored: it tells nothing of the sums to come. The first
                one behind a rest replaces earlier times.
        """
        known = self._compute_times.known
        self._compute_times.update(seconds)
        roles = self._roles.popleft() if self._roles else np.zeros_like(seconds, np.uint32)
        self._rested |= resting(roles)
        if summing is not None:
            sums = np.isin(roles, (DenseRole.TRAINS, DenseRole.TRAINS_ON))
            weights = np.where(self._rested | (not known), 1.0, _SMOOTHING)
            self._summing[sums] += (weights * (summing - self._summing))[sums]
            self._rested &= ~sums
        self._trials.observe(float((seconds if summing is None else seconds + summing).max()))
        if not known:
            self._balance.forget()  # the paces so far followed from the guess

    def assign(self, mechanism: Mechanism, problem: DispatchInput, costs: CostModel) -> Assignment:
        """Assigns a batch of full size: the fastest of a few assignments whose rows fit the caches."""
        best: Assignment | None = None
        least_seconds = np.inf
        self._trials.begin(self._balance.sample_seconds, self._summing)
        least = np.maximum(self._least, np.minimum(self._trials.tried, self._balance.most))
        if least.sum() <= self._job.batch_size:
            self._balance.least = least
        capacities = self._balance.current(self._most(), self._summing)
        for refinements in range(_REFINEMENTS + 1):
            assigned = mechanism.decide(
                replace(problem, capacities=capacities, limits=self._limits(capacities, costs.unit_seconds))
            )
            workloads = np.bincount(assigned.workers, minlength=len(capacities)).astype(np.int32)
            trained, moved = problem.engine.preview(assigned.workers)
            fits = bool((trained <= self._rooms).all())
            self._learn_room(trained, workloads, too_many=not fits)
            seconds = costs.transfer_seconds * moved + (self._computing + self._evicting) * workloads + self._summing
            slowest = float(seconds.max())
            gained = not fits or slowest < _GAIN * least_seconds
            if fits and slowest < least_seconds:
                best, least_seconds = assigned, slowest
            even = fits and slowest <= _EVEN * float(seconds.mean())
            if refinements == _REFINEMENTS or even or not gained or problem.time.over():
                break
            capacities = self._balance.refine(workloads, seconds, self._most(), self._summing)
        return best if best is not None else self._cautious(mechanism, problem)

    def learn(self, decision: Decision) -> None:
        """Learns the planned transfers of an iteration."""
        workloads, costs = decision.workloads, decision.cost_model
        self._compute_times.plan(decision.link_seconds, workloads)
        self._roles.append(decision.roles)
        self._trials.plan(workloads, resting(decision.roles))
        if len(decision.assignment) < self._job.batch_size:
            return
        evicted = replace(Operations.none(len(workloads)), evict_push=decision.moved_bytes.evict_push)
        evicting = costs.link_seconds(evicted) / np.maximum(workloads, 1)
        self._evicting += _SMOOTHING * (evicting - self._evicting)
        seconds = decision.link_seconds + self._computing * workloads
        self._balance.update(np.maximum(seconds, 0.0), workloads)

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state from which the workloads follow, for `load`."""
        parts = {
            "paces": self._balance.save(),
            "computing": self._compute_times.save(),
            "trials": self._trials.save(),
        }
        return within(parts) | {
            "evicting": self._evicting,
            "fits": self._fits,
            "summing": self._summing,
            "roles": np.reshape(np.array(self._roles, np.uint32), (-1, self._job.workers)),
            "rested": self._rested,
        }

    def load(self, saved: Arrays) -> None:
        """Restores the result of `save`, for the same workers."""
        self._balance.load(of(saved, "paces"))
        self._compute_times.load(of(saved, "computing"))
        self._evicting, self._fits, self._summing = (saved[name] for name in ("evicting", "fits", "summing"))
        self._trials.load(of(saved, "trials"))
        if "roles" in saved:  # earlier versions had none: nobody rested
            self._roles, self._rested = deque(saved["roles"]), saved["rested"]

    @property
    def _computing(self) -> NDArray[np.float64]:
        """Computing seconds per sample, float64 [n]; negative where the cost model overestimates the link time."""
        if self._compute_times.known:
            return self._compute_times.sample_seconds
        return np.full(self._job.workers, self._guess)

    def _most(self) -> NDArray[np.float64]:
        """Returns upper limits of the workloads that respect workers, rests and caches, float64 [n].

        If the caches together have no room for a batch of k samples, the limits are the workers' alone.
        """
        fitting = np.where(self._trials.out, 0.0, np.floor(np.maximum(self._fits, self._surely_fits)))
        most = np.maximum(np.minimum(self._balance.most, fitting), self._balance.least)
        return most if most.sum() >= self._job.batch_size else self._balance.most

    def _limits(self, capacities: NDArray[np.int32], unit_seconds: float) -> WorkloadLimits:
        least, most = self._balance.least.astype(np.int32), self._most().astype(np.int32)
        sample_costs = np.maximum(self._computing, 0.0) / unit_seconds
        fixed_costs = self._summing / unit_seconds
        return WorkloadLimits(np.minimum(least, capacities), np.maximum(most, capacities), sample_costs, fixed_costs)

    def _learn_room(self, trained: NDArray[np.int64], workloads: NDArray[np.int32], *, too_many: bool) -> None:
        """Learns the number of samples whose rows fit each cache.

        The estimate scales rows in proportion to samples. That is safe, because more samples share more rows and so
        need less room than proportion predicts. Estimates are smoothed, except after rows that did not fit, when the
        new estimate counts at once.
        """
        seen = trained > 0
        fits = np.where(seen, _FILLED * self._rooms * workloads / np.maximum(trained, 1), self._fits)
        smooth = np.isfinite(self._fits) & ~(too_many & (trained > self._rooms))
        self._fits[smooth] += _SMOOTHING * (fits[smooth] - self._fits[smooth])
        self._fits[~smooth] = fits[~smooth]

    def _cautious(self, mechanism: Mechanism, problem: DispatchInput) -> Assignment:
        """Assigns under workloads whose rows fit even if the samples share none; under the job's own if none do."""
        most = np.maximum(np.minimum(self._balance.most, self._surely_fits), self._balance.least)
        workloads = np.array(self._job.workloads, np.int32)
        if most.sum() >= self._job.batch_size:
            workloads = self._balance.current(most, self._summing)
        return mechanism.decide(replace(problem, capacities=workloads, limits=None))
