"""LAIA: location-aware inputs allocation (Herald paper, Alg. 1), also over two batches (Herald §7)."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.draws import start_of
from dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd_native import solver
from services.domain.jobs import JobSpec, scale_workloads

_SECOND = 0x9E3779B97F4A7C15  # makes the second choice's seed from the first's


class Laia:
    """Each sample in turn goes to the worker with room that has most of its rows at hand.

    A copy is at hand when it is the latest, or when its worker took part in the row's last training and still
    caches it, as Herald's released scheduler scores. Ties are broken at random, by (seed, iteration).
    """

    lookahead = 0

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Runs Alg. 1, in which worker j has room for capacities[j] samples instead of k / n."""
        started = time.perf_counter()
        scores = problem.engine.affinity()
        scored = time.perf_counter()
        assignment = allocate(scores, problem.capacities, self._seed, problem.iteration)
        return Assignment(assignment, score_seconds=scored - started)


def allocate(scores: NDArray[np.int32], capacities: NDArray[np.int32], seed: int, iteration: int) -> NDArray[np.int32]:
    """Gives each sample in turn (Alg. 1, lines 8-12) to the worker with room that scores highest.

    Args:
        scores: int32 [k, n].
        capacities: int32 [n], sum k.
        seed: decides ties, together with the iteration.
        iteration: t.

    Returns:
        int32 [k], the worker of each sample.
    """
    return solver.allocate(np.ascontiguousarray(scores, np.int32), capacities, start_of(seed, iteration))


class LaiaTwoChoices:
    """LAIA by the power of two choices (Herald §7, "scheduling among multiple batches").

    Allocates the batch twice, with different ties, explores the next batch after each, and keeps the allocation with
    the higher sum of both batches' scores. The next batch is scored as the first one would leave the rows: whoever
    trains a row has it at hand, and nobody else. Evictions in between are not foreseen.
    """

    lookahead = 1

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Chooses between two allocations; the first one if no batch follows."""
        started = time.perf_counter()
        scores = problem.engine.affinity()
        first = allocate(scores, problem.capacities, self._seed, problem.iteration)
        if not problem.lookahead_ids or not len(problem.lookahead_ids[0]):
            return Assignment(first, score_seconds=time.perf_counter() - started)
        second = allocate(scores, problem.capacities, (self._seed + _SECOND) % 2**64, problem.iteration)
        next_batch = _NextBatch(problem)
        scored = time.perf_counter()
        totals = [
            _total(scores, workers) + next_batch.best_total(workers, self._seed, problem.iteration + 1)
            for workers in (first, second)
        ]
        return Assignment(first if totals[0] >= totals[1] else second, score_seconds=scored - started)


class _NextBatch:
    """The batch after the one to assign, scored for any allocation of that one."""

    def __init__(self, problem: DispatchInput) -> None:
        ids = problem.lookahead_ids[0]
        self._workers = len(problem.capacities)
        self._capacities = np.array(scale_workloads(tuple(problem.capacities.tolist()), len(ids)), np.int32)
        distinct, self._numbers = np.unique(problem.ids, return_inverse=True)
        self._numbers = self._numbers.reshape(problem.ids.shape)
        found = np.minimum(np.searchsorted(distinct, ids), len(distinct) - 1)
        shared = distinct[found] == ids
        self._shared = np.sort(np.where(shared, found, len(distinct)), axis=1)  # the last: not in the batch before
        self._shared[:, 1:][self._shared[:, 1:] == self._shared[:, :-1]] = len(distinct)  # repeats count once
        self._distinct = len(distinct)
        self._base = _affinity_of_others(problem, ids, shared)

    def best_total(self, workers: NDArray[np.int32], seed: int, iteration: int) -> int:
        """Scores LAIA's allocation of this batch after the one before it was assigned to these workers."""
        at_hand = np.zeros((self._distinct + 1, self._workers), np.int32)
        at_hand[self._numbers, workers[:, None]] = 1
        at_hand[self._distinct] = 0
        scores = self._base + at_hand[self._shared].sum(axis=1, dtype=np.int32)
        return _total(scores, allocate(scores, self._capacities, seed, iteration))


def _affinity_of_others(
    problem: DispatchInput, ids: NDArray[np.uint64], shared: NDArray[np.bool_]
) -> NDArray[np.int32]:
    """Counts affinities over the ids of the next batch that the batch to assign does not train, int32 [k', n].

    A shared id is replaced by another one of its sample, as repeats count once; a sample of shared ids only has none.
    """
    others = ~shared
    stand_in = np.take_along_axis(ids, others.argmax(axis=1)[:, None], axis=1)
    problem.engine.prepare(np.ascontiguousarray(np.where(shared, stand_in, ids)))
    scores = problem.engine.affinity()
    problem.engine.prepare(np.ascontiguousarray(problem.ids))
    scores[~others.any(axis=1)] = 0
    return scores


def _total(scores: NDArray[np.int32], workers: NDArray[np.int32]) -> int:
    return int(np.take_along_axis(scores, workers[:, None], axis=1).sum())
