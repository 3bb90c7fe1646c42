"""Exactness of answers to float costs that one scale of fixed point cannot hold.

A solver works on integers: float costs times a power of two, with 51 bits for the largest. Costs of a wider range, such
as 1e16 in forbidden places and 0.3 elsewhere, are rounded, and the optimum of the rounded costs may be another one. The
answer is then improved, and proved by the costs as they were given:

1. No entry above the cost of a known assignment is in an optimal one. Such entries are lowered to just above that cost,
   and the problem is solved again on a finer scale, as long as that changes the scale.
2. An assignment is optimal unless moving one sample each along a cycle of workers makes it cheaper (Klein, 1967). The
   changes are summed exactly, as fractions, so the absence of such a cycle is a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.protocol import Prices, Solution
from esd.services.domain.hybrid import Costs

Solve: TypeAlias = Callable[[Costs, "Prices | None"], Solution]

WIDE_BITS = 51  # native/solver/fixed_point.h, kWideBits
_MOST_MOVES = 10_000  # cycles that are followed before the answer is given with its gap


def solve_exactly(solve: Solve, costs: Costs, prices: Prices | None) -> Solution:
    """Solves by fixed point, and improves the answer until it is optimal for the costs as they were given.

    Args:
        solve: solves costs [k, n] from start prices [n], exactly but for the rounding to fixed point.
        costs: [k, n].
        prices: [n], where the search starts.

    Returns:
        The solution. Its gap is 0 if it is proved optimal, and else an upper bound on the distance from the optimum.
    """
    found = solve(costs, prices)
    if holds(costs):
        return found
    wide = costs.astype(np.float64)
    lowered = wide
    while True:
        limit = math.nextafter(_cost(wide, found.assignment), math.inf)
        if not limit < lowered.max() / 2:
            break
        lowered = np.minimum(lowered, limit)
        finer = solve(lowered, found.prices)
        if _cost(wide, finer.assignment) <= _cost(wide, found.assignment):
            found = finer
    assignment, proved = _without_cheaper_cycles(wide, found.assignment)
    gap = 0.0 if proved else _gap(wide, assignment, np.asarray(found.prices, np.float64))
    return replace(found, assignment=assignment, cost=_cost(wide, assignment), gap=gap)


def holds(costs: Costs) -> bool:
    """Returns whether fixed point holds all costs [k, n] exactly; integers always."""
    if costs.dtype.kind == "i":
        return True
    largest = float(costs.max())
    if largest == 0:
        return True
    scaled = np.ldexp(costs.astype(np.float64), WIDE_BITS - math.frexp(largest)[1])
    return bool((np.floor(scaled) == scaled).all() and (np.ldexp(scaled, -WIDE_BITS)[costs > 0] > 0).all())


def _cost(costs: NDArray[np.float64], assignment: NDArray[np.int32]) -> float:
    return math.fsum(costs[np.arange(len(costs)), assignment])


def _without_cheaper_cycles(
    costs: NDArray[np.float64], assignment: NDArray[np.int32]
) -> tuple[NDArray[np.int32], bool]:
    """Follows cycles that make an assignment cheaper. Returns it, int32 [k], and whether no such cycle is left."""
    current = assignment.copy()
    for _ in range(_MOST_MOVES):
        changes, rows = _cheapest_moves(costs, current)
        cycle = _negative_cycle(changes)
        if cycle is None:
            return current, True
        for here, there in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            current[rows[here][there]] = there
    return current, False


def _cheapest_moves(
    costs: NDArray[np.float64], assignment: NDArray[np.int32]
) -> tuple[list[list[Fraction | None]], list[list[int]]]:
    """Returns the least change of cost by moving a sample, and the sample, for each two workers; None: none to move."""
    workers = costs.shape[1]
    changes: list[list[Fraction | None]] = [[None] * workers for _ in range(workers)]
    rows = [[-1] * workers for _ in range(workers)]
    for here in range(workers):
        held = np.flatnonzero(assignment == here)
        if not len(held):
            continue
        own = costs[held, here]
        for there in range(workers):
            if there == here:
                continue
            high, low = _difference(costs[held, there], own)
            least = high == high.min()
            at = int(np.flatnonzero(least)[np.argmin(low[least])])
            changes[here][there] = Fraction(float(costs[held[at], there])) - Fraction(float(own[at]))
            rows[here][there] = int(held[at])
    return changes, rows


def _difference(
    one: NDArray[np.float64], other: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns one - other as a rounded difference and its error, exactly (Knuth's two-sum)."""
    high = one - other
    part = high - one
    return high, (one - (high - part)) - (other + part)


def _negative_cycle(changes: list[list[Fraction | None]]) -> list[int] | None:
    """Returns the workers of a cycle with a sum of changes below 0, in order (Bellman, Ford); None: there is none."""
    workers = len(changes)
    distance = [Fraction(0)] * workers
    before = [-1] * workers
    last = -1
    for _ in range(workers):
        last = -1
        for here in range(workers):
            for there, change in enumerate(changes[here]):
                if change is not None and distance[here] + change < distance[there]:
                    distance[there], before[there], last = distance[here] + change, here, there
        if last < 0:
            return None
    for _ in range(workers):  # back into the cycle
        last = before[last]
    cycle, at = [last], before[last]
    while at != last:
        cycle.append(at)
        at = before[at]
    return cycle[::-1]


def _gap(costs: NDArray[np.float64], assignment: NDArray[np.int32], prices: NDArray[np.float64]) -> float:
    """Returns the cost minus the dual bound of the prices; above 0, since nothing is proved."""
    priced = costs + prices
    slack = priced[np.arange(len(costs)), assignment] - priced.min(axis=1)
    return max(math.fsum(slack), math.ulp(_cost(costs, assignment)))
