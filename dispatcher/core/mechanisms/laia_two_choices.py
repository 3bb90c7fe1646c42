"""LAIA over two batches, by the power of two choices (Herald §7, "scheduling among multiple batches")."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.laia import allocate
from dispatcher.core.mechanisms.protocol import Choice, Turn
from services.domain.jobs import scale_workloads

_SECOND = 0x9E3779B97F4A7C15  # makes the second choice's seed from the first's


class LaiaTwoChoices:
    """Allocates the batch twice, with different ties, explores the next batch after both, and keeps the better.

    Better is the higher sum of both batches' scores. The next batch is scored as the first one would leave the rows:
    whoever trains a row has it at hand, nobody else. Evictions in between are not foreseen.
    """

    lookahead = 1

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def decide(self, turn: Turn, /) -> Choice:
        """Chooses between two allocations; the first one if no batch follows."""
        started = time.perf_counter()
        scores = turn.engine.affinity()
        first = allocate(scores, turn.capacities, self._seed, turn.iteration)
        if not turn.upcoming or not len(turn.upcoming[0]):
            return Choice(first, score_seconds=time.perf_counter() - started)
        second = allocate(scores, turn.capacities, (self._seed + _SECOND) % 2**64, turn.iteration)
        following = _Following(turn)
        scored = time.perf_counter()
        totals = [
            _total(scores, choice) + following.best_total(choice, self._seed, turn.iteration + 1)
            for choice in (first, second)
        ]
        return Choice(first if totals[0] >= totals[1] else second, score_seconds=scored - started)


class _Following:
    """The batch after a turn's, scored for any allocation of the turn's."""

    def __init__(self, turn: Turn) -> None:
        following = turn.upcoming[0]
        self._workers = len(turn.capacities)
        self._capacities = np.array(scale_workloads(tuple(turn.capacities.tolist()), len(following)), np.int32)
        distinct, self._numbers = np.unique(turn.ids, return_inverse=True)
        self._numbers = self._numbers.reshape(turn.ids.shape)
        places = np.minimum(np.searchsorted(distinct, following), len(distinct) - 1)
        shared = distinct[places] == following
        self._shared = np.sort(np.where(shared, places, len(distinct)), axis=1)  # the last: not in the turn's batch
        self._shared[:, 1:][self._shared[:, 1:] == self._shared[:, :-1]] = len(distinct)  # repeats count once
        self._distinct = len(distinct)
        self._base = _affinity_of_others(turn, following, shared)

    def best_total(self, assignment: NDArray[np.int32], seed: int, iteration: int) -> int:
        """The score of LAIA's allocation of the batch after the turn's was assigned so."""
        at_hand = np.zeros((self._distinct + 1, self._workers), np.int32)
        at_hand[self._numbers, assignment[:, None]] = 1
        at_hand[self._distinct] = 0
        scores = self._base + at_hand[self._shared].sum(axis=1, dtype=np.int32)
        return _total(scores, allocate(scores, self._capacities, seed, iteration))


def _affinity_of_others(turn: Turn, following: NDArray[np.uint64], shared: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Affinities that come from ids which the turn's batch does not train, int32 [k', n].

    A shared id is replaced by another one of its sample, as repeats count once; a sample of shared ids only has none.
    """
    others = ~shared
    stand_in = np.take_along_axis(following, others.argmax(axis=1)[:, None], axis=1)
    turn.engine.prepare(np.ascontiguousarray(np.where(shared, stand_in, following)))
    scores = turn.engine.affinity()
    turn.engine.prepare(np.ascontiguousarray(turn.ids))
    scores[~others.any(axis=1)] = 0
    return scores


def _total(scores: NDArray[np.int32], assignment: NDArray[np.int32]) -> int:
    return int(np.take_along_axis(scores, assignment[:, None], axis=1).sum())
