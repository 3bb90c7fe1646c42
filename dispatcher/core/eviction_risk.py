"""How likely it is that a row which enters a cache pushes another one out (ESD §8.1, future work)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SMOOTHING = 0.1  # weight of the newest iteration


class EvictionRisk:
    """Learns, worker by worker, the share of taken slots that cost an evict push.

    A cache that is not full has evicted nothing yet and costs nothing; a full one evicts a row for each slot that is
    taken, and some of these rows owe a push.
    """

    def __init__(self, workers: int) -> None:
        """Starts without any, for n workers."""
        self._risks = np.zeros(workers)

    def update(self, pushed: NDArray[np.int64], dropped: NDArray[np.int64]) -> None:
        """Takes in how many rows left each cache in one iteration with an evict push and without, int64 [n]."""
        evicted = pushed + dropped
        some = evicted > 0
        self._risks[some] += _SMOOTHING * (pushed[some] / evicted[some] - self._risks[some])

    def costs(self, link_costs: NDArray[np.int32]) -> NDArray[np.float64]:
        """Expected cost of taking a slot of each worker, float64 [n], in the unit of the link costs.

        Where rows differ in size, of taking one unit of room.
        """
        costs: NDArray[np.float64] = self._risks * link_costs
        return costs
