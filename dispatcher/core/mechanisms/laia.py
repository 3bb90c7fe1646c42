"""LAIA: location-aware inputs allocation (Herald paper, Alg. 1), also over two batches (Herald §7)."""

from __future__ import annotations

import time
from typing import cast

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.mechanisms.draws import start_of
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.native import solver
from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import GOLDEN
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import LaiaOptions, LaiaReading
from esd.services.domain.workloads import scale_workloads


class Laia:
    """Sends each sample in turn to the worker with room that holds most of its rows.

    A worker holds a row if its copy is the latest. By the reading of Herald's code a worker also holds a row if it took
    part in the row's last training and still caches it. Ties are broken at random, by (seed, iteration).
    """

    lookahead = 0

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed
        self._latest = counts_latest(job)

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Runs Alg. 1, with room for capacities[j] samples at worker j instead of k / n."""
        started = time.perf_counter()
        scores = problem.engine.affinity(latest=self._latest)
        scored = time.perf_counter()
        assignment = allocate(scores, problem.capacities, self._seed, problem.iteration)
        return Assignment(assignment, score_seconds=scored - started)


def counts_latest(job: JobSpec) -> bool:
    """Returns whether the score counts the latest copies alone, which is the reading of Herald's text."""
    return cast(LaiaOptions, job.options).laia_reading is LaiaReading.TEXT


def allocate(scores: NDArray[np.int32], capacities: NDArray[np.int32], seed: int, iteration: int) -> NDArray[np.int32]:
    """Gives each sample in turn (Alg. 1, lines 8-12) to the worker with the highest score among the workers with room.

    Args:
        scores: int32 [k, n].
        capacities: int32 [n], sum k.
        seed: breaks ties, together with the iteration.
        iteration: t.

    Returns:
        int32 [k], the worker of each sample.
    """
    return solver.allocate(np.ascontiguousarray(scores, np.int32), capacities, start_of(seed, iteration))


class LaiaTwoChoices:
    """LAIA by the power of two choices (Herald §7, "scheduling among multiple batches").

    It allocates the batch twice, with ties broken differently, explores the next batch after each allocation, and keeps
    the allocation with the higher sum of both batches' scores. The scores of the next batch assume the rows as the
    first batch leaves them: exactly the workers that train a row hold it, by the reading of Herald's text only if one
    worker alone trains it. They ignore evictions in between.
    """

    lookahead = 1

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed
        self._latest = counts_latest(job)

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Returns the better of two allocations; the first if no batch follows."""
        started = time.perf_counter()
        scores = problem.engine.affinity(latest=self._latest)
        first = allocate(scores, problem.capacities, self._seed, problem.iteration)
        if not problem.lookahead or not len(problem.lookahead[0]):
            return Assignment(first, score_seconds=time.perf_counter() - started)
        second = allocate(scores, problem.capacities, (self._seed + GOLDEN) % 2**64, problem.iteration)
        next_batch = _NextBatch(problem, latest=self._latest)
        scored = time.perf_counter()
        totals = [
            _total(scores, workers) + next_batch.best_total(workers, self._seed, problem.iteration + 1)
            for workers in (first, second)
        ]
        return Assignment(first if totals[0] >= totals[1] else second, score_seconds=scored - started)


class _NextBatch:
    """The next batch, with its scores after any allocation of the present batch."""

    def __init__(self, problem: DispatchInput, *, latest: bool) -> None:
        self._latest = latest
        batch, later = problem.batch, problem.lookahead[0]
        self._workers = len(problem.capacities)
        self._capacities = np.array(scale_workloads(tuple(problem.capacities.tolist()), len(later)), np.int32)
        distinct, self._numbers = np.unique(batch.ids, return_inverse=True)
        self._sample_of = np.repeat(np.arange(len(batch)), np.diff(batch.begins))  # of each id
        found = np.searchsorted(distinct, later.ids)
        shared = np.isin(later.ids, distinct)
        samples = np.repeat(np.arange(len(later)), np.diff(later.begins))
        # The shared ids of each sample, where repeats count once.
        pairs = np.unique(np.stack([samples[shared], found[shared]], axis=1), axis=0)
        self._shared, self._shared_by = pairs[:, 1], pairs[:, 0]
        self._distinct = len(distinct)
        self._base = _affinity_of_others(problem, later, ~shared, latest=latest)

    def best_total(self, workers: NDArray[np.int32], seed: int, iteration: int) -> int:
        """Returns the score of LAIA's allocation of the next batch, if `workers` train the present batch's samples."""
        at_hand = np.zeros((self._distinct, self._workers), np.int32)
        at_hand[self._numbers, workers[self._sample_of]] = 1
        if self._latest:
            at_hand[at_hand.sum(axis=1) > 1] = 0  # several trainers have partial gradients, none has the latest copy
        scores = self._base.copy()
        np.add.at(scores, self._shared_by, at_hand[self._shared])
        return _total(scores, allocate(scores, self._capacities, seed, iteration))


def _affinity_of_others(
    problem: DispatchInput, later: SampleBatch, others: NDArray[np.bool_], *, latest: bool
) -> NDArray[np.int32]:
    """Counts affinities over the ids of the next batch in `others`, bool [N], which the present batch does not train.

    Returns:
        int32 [k', n]. The engine has the present batch prepared again afterwards.
    """
    places = np.arange(len(later) * later.fields)  # of each list of ids
    lists = places if later.lengths is None else np.repeat(places, later.lengths.reshape(-1))
    lengths = np.bincount(lists[others], minlength=len(places)).astype(np.uint32).reshape(len(later), later.fields)
    problem.engine.prepare(np.ascontiguousarray(later.ids[others]), lengths)
    scores = problem.engine.affinity(latest=latest)
    problem.engine.prepare(*problem.batch.id_columns)
    return scores


def _total(scores: NDArray[np.int32], workers: NDArray[np.int32]) -> int:
    return int(np.take_along_axis(scores, workers[:, None], axis=1).sum())
