"""LAIA: location-aware inputs allocation (Herald paper, Alg. 1)."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.draws import start_of
from dispatcher.core.mechanisms.protocol import Choice, Turn
from esd_native import solver


class Laia:
    """Each sample in turn goes to the worker with room that has most of its rows at hand.

    A copy is at hand when it is the latest, or when its worker took part in the row's last training and still
    caches it, as Herald's released scheduler scores. Ties are broken at random, by (seed, iteration).
    """

    lookahead = 0

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def decide(self, turn: Turn, /) -> Choice:
        """Runs Alg. 1 with worker j's capacity capacities[j] in place of k / n."""
        started = time.perf_counter()
        scores = turn.engine.affinity()
        scored = time.perf_counter()
        assignment = allocate(scores, turn.capacities, self._seed, turn.iteration)
        return Choice(assignment, score_seconds=scored - started)


def allocate(scores: NDArray[np.int32], capacities: NDArray[np.int32], seed: int, iteration: int) -> NDArray[np.int32]:
    """Alg. 1, lines 8-12: each sample in turn to the worker with room that scores highest, seeded ties.

    Args:
        scores: int32 [k, n].
        capacities: int32 [n], sum k.
        seed: of the ties, together with the iteration.
        iteration: t.

    Returns:
        int32 [k], the worker of each sample.
    """
    return solver.allocate(np.ascontiguousarray(scores, np.int32), capacities, start_of(seed, iteration))
