"""Exact capacitated assignment of k samples to n workers, and the greedy heuristic of HybridDis.

Costs are int32, float32 or float64 [k, n], C-contiguous, finite and not negative; capacities are int32 [n], not
negative, and sum to k; 1 <= n <= 64. Everything else raises ValueError with a message that names the value.
All functions release the GIL and run on one thread.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64]
Prices = NDArray[np.int64] | NDArray[np.float64]

class Solution:
    """An optimal assignment with its proof.

    The assignment depends on costs and capacities only, not on the algorithm nor on the prices it started from.
    """

    @property
    def assignment(self) -> NDArray[np.int32]:
        """int32 [k]: worker of each sample; worker j appears capacities[j] times."""

    @property
    def cost(self) -> int | float:
        """Sum of the chosen costs: int for integer costs, float otherwise."""

    @property
    def prices(self) -> Prices:
        """int64 (integer costs) or float64 [n]: the canonical optimal duals.

        Every sample sits at a worker with the least costs[i, j] + prices[j]. The first worker with capacity has
        price 0, the others have the smallest prices that are optimal.
        """

    @property
    def gap(self) -> float:
        """Primal minus dual objective. 0 proves that no assignment is cheaper."""

    @property
    def algorithm(self) -> Literal["dual", "paths"]:
        """The algorithm that reached the optimum."""

    @property
    def passes(self) -> int:
        """Passes over the cost matrix of the dual ascent."""

    @property
    def augmentations(self) -> int:
        """Shortest paths along which samples were moved."""

def solve(
    costs: Costs,
    capacities: NDArray[np.int32],
    prices: Prices | None = None,
    algorithm: Literal["auto", "dual", "paths"] = "auto",
    pass_limit: int = 64,
) -> Solution:
    """Assigns every sample to one worker, worker j capacities[j] times, at the least total cost.

    Args:
        costs: [k, n], k >= 1. Floats are solved in fixed point with at least 46 bits below the largest cost.
        capacities: [n], not negative, sum k.
        prices: [n], where the dual ascent starts; any values are correct, those of a similar problem are fast.
        algorithm: "dual" is dual steepest ascent, which falls back to "paths" (multilevel successive shortest
            paths); "auto" is "dual" for costs that are integers and "paths" otherwise.
        pass_limit: passes of the dual ascent before it falls back.
    """

def check(samples: int, workers: int, capacities: NDArray[np.int32], prices: Prices | None = None) -> None:
    """Refuses arguments of `solve` that are wrong whatever the costs: shape, capacities, prices."""

def rank(
    costs: Costs,
    capacities: NDArray[np.int32],
    criterion: Literal["min2-min", "min3-min", "min3-min2", "row-mean"],
    prices: Prices | None = None,
) -> NDArray[np.uint32]:
    """uint32 [k]: the samples by descending criterion (ESD §4.3) of costs + prices, ties by ascending index.

    Workers without capacity are left out. A row of fewer than p costs has its largest as p-th smallest.
    Capacities need not sum to k.
    """

def greedy(
    costs: Costs,
    capacities: NDArray[np.int32],
    order: NDArray[np.uint32],
    prices: Prices | None = None,
) -> NDArray[np.int32]:
    """int32 [r]: the worker of each sample of `order`, uint32 [r] (Heu, ESD Alg. 2 lines 13-27).

    Each sample in turn takes the worker with the least costs + prices that still has room, ties to the lowest
    worker. Capacities must sum to at least r.
    """

def allocate(scores: NDArray[np.int32], capacities: NDArray[np.int32], start: int) -> NDArray[np.int32]:
    """int32 [k]: each sample in turn to the worker with room that scores highest (Herald Alg. 1, lines 8-12).

    Entry [i, j] of `scores`, int32 [k, n], loses ties to the lower value of mix64(start + (i n + j + 1) g) of another
    worker, where g is 2^64 divided by the golden ratio. `start` is in 0..2^64-1.
    """
