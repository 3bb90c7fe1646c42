"""Exact capacitated assignment of k samples to n workers, and the greedy heuristics of HybridDis and Herald.

Costs are int32, float32 or float64 [k, n], C-contiguous, finite and not negative; capacities are int32 [n], not
negative, and sum to k unless a function says otherwise; 1 <= n <= 128. Everything else raises ValueError with a message
that names the value. All functions release the GIL and run on one thread.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64]
Prices = NDArray[np.int64] | NDArray[np.float64]

class Solution:
    """An optimal assignment with its proof.

    The assignment depends on the costs and capacities only, neither on the algorithm nor on the prices it started from.
    """

    @property
    def assignment(self) -> NDArray[np.int32]:
        """int32 [k], the worker of each sample; worker j appears capacities[j] times."""

    @property
    def cost(self) -> int | float:
        """The sum of the costs of the assignment, an int for integer costs and a float otherwise."""

    @property
    def prices(self) -> Prices:
        """The canonical optimal duals [n], int64 for integer costs and float64 otherwise.

        Every sample sits at a worker with the least costs[i, j] + prices[j]. The first worker with capacity has
        price 0, the others have the smallest prices that are optimal.
        """

    @property
    def gap(self) -> float:
        """The cost minus the dual bound. 0 proves that no assignment is cheaper."""

    @property
    def algorithm(self) -> Literal["dual", "paths"]:
        """The algorithm that reached the optimum."""

    @property
    def passes(self) -> int:
        """The number of passes of the dual ascent over the cost matrix."""

    @property
    def augmentations(self) -> int:
        """The number of shortest paths along which samples were moved."""

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
        prices: [n], the start of the dual ascent. Any finite values give the same answer; the prices of a similar
            problem give it sooner.
        algorithm: "dual" is dual steepest ascent, which switches to "paths" (multilevel successive shortest paths)
            if it takes too many passes; "auto" is "dual" for integer costs and "paths" otherwise.
        pass_limit: the number of passes after which the dual ascent switches to "paths".
    """

def check(samples: int, workers: int, capacities: NDArray[np.int32], prices: Prices | None = None) -> None:
    """Checks the arguments of `solve` that do not depend on the costs: their shape, the capacities, the prices."""

def rank(
    costs: Costs,
    capacities: NDArray[np.int32],
    criterion: Literal["min2-min", "min3-min", "min3-min2", "row-mean"],
    prices: Prices | None = None,
) -> NDArray[np.uint32]:
    """Returns the samples by descending criterion (ESD §4.3) of costs + prices, ties by ascending index: uint32 [k].

    Workers without capacity are left out. For a row of fewer than p costs the p-th smallest is its largest. The
    capacities need not sum to k, but at least one must be positive.
    """

def greedy(
    costs: Costs,
    capacities: NDArray[np.int32],
    order: NDArray[np.uint32],
    prices: Prices | None = None,
) -> NDArray[np.int32]:
    """Returns the assignment of HybridDis' heuristic (Heu, ESD Alg. 2 lines 13-27): int32 [r], in the order of `order`.

    One after another, each sample of `order`, uint32 [r], gets the worker with the least costs + prices among the
    workers with room, ties to the lowest worker. The capacities must sum to at least r.
    """

def allocate(scores: NDArray[np.int32], capacities: NDArray[np.int32], start: int) -> NDArray[np.int32]:
    """Returns the allocation of Herald (Alg. 1, lines 8-12): the worker of each sample, int32 [k].

    One after another, each sample gets the worker with the highest of its `scores`, int32 [k, n], among the workers
    with room. Among equal scores sample i gets the worker j with the least mix64(start + (i n + j + 1) g), where g is
    2^64 divided by the golden ratio. `start` is in 0..2^64-1.
    """

def assign_by_value(values: NDArray[np.uint64], capacities: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the worker of each sample by rendezvous hashing with exact quotas, int32 [k].

    Samples of the same value, of `values` uint64 [k], go to the nearest worker with room: the worker with the least
    -ln(u_j) / capacities[j], where u_j = (floor(h / 2^11) + 1) / 2^53, h = mix64(v ^ mix64(j + 1)) and v =
    mix64(value). Values are placed in the order of v, samples of one value in the order of the batch.

    Args:
        values: uint64 [k], k >= 1.
        capacities: int32 [n], not negative, sum k.
    """

def profile_fields(
    ids: NDArray[np.uint64], capacities: NDArray[np.int32], link_costs: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Returns the cost of some batches if `assign_by_value` had assigned them by each field, int64 [F].

    Pulls and update pushes are counted as docs/semantics.md defines them, with caches that are empty at first and never
    evict.

    Args:
        ids: uint64 [N, F], the samples of b batches, batch after batch.
        capacities: int32 [b, n], the samples of each worker in each batch; they sum to N.
        link_costs: int32 [n], T_j in any unit.
    """
