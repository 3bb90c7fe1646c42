"""HybridDis (ESD §4.3, Algorithm 2): an exact solver for the most important samples, a heuristic for the rest."""

from __future__ import annotations

import time
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esd.dispatcher.solvers.protocol import Prices, Solver
from esd.native import solver as native
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.hybrid import Costs, HybridResult, as_capacities, as_costs
from esd.services.domain.mechanisms import Criterion, check_choice


def hybrid_dis(
    costs: ArrayLike,
    capacities: ArrayLike,
    alpha: float,
    criterion: Criterion,
    solver: Solver,
    *,
    prices: Prices | None = None,
) -> HybridResult:
    """Assigns every sample to one worker, worker j capacities[j] times.

    Opt gives floor(capacities[j] * alpha) samples to every worker j: the samples with the largest criterion. Heu takes
    the other samples by descending criterion, and gives each to the cheapest worker that still has room.

    Args:
        costs: [k, n], not negative; integers up to 2^31 - 1, or floats, inf where a worker may not take a sample. k is
            at least 1, n in 1..128.
        capacities: integers [n], not negative, sum k.
        alpha: share of Opt, 0..1.
        criterion: ranks the samples for Opt.
        solver: solves Opt's part.
        prices: [n], optimal duals of an earlier, similar problem. Opt starts from them. Heu orders and chooses by cost
            + price, because prices foresee which cheap workers fill up. Without prices Heu is the paper's.

    Raises:
        InvalidArgument: an argument violates the limits above; the message names the value.
    """
    check_choice(alpha, criterion)
    costs = as_costs(costs)
    capacities = as_capacities(capacities, *costs.shape)
    given, costs = costs, _finite(costs)
    samples = len(costs)
    optimal = _shares(capacities, alpha)
    taken = int(optimal.sum())

    assignment = np.empty(samples, np.int32)
    optimal_rows = np.arange(samples, dtype=np.uint32)
    if taken < samples:
        try:
            order = native.rank(costs, capacities, criterion.value, prices)
            optimal_rows, rest = np.sort(order[:taken]), order[taken:]
            assignment[rest] = native.greedy(costs, capacities - optimal, rest, prices)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
    if taken == 0:
        return HybridResult(assignment, _cost(given, assignment), optimal_rows, "none", None, 0.0)

    started = time.perf_counter()
    solution = solver.solve(costs if taken == samples else costs[optimal_rows], optimal, prices)
    seconds = time.perf_counter() - started
    assignment[optimal_rows] = solution.assignment
    cost = solution.cost if taken == samples and costs is given else _cost(given, assignment)
    return HybridResult(assignment, cost, optimal_rows, solution.solver, solution.prices, seconds, solution.gap)


def _shares(capacities: NDArray[np.int32], alpha: float) -> NDArray[np.int32]:
    """Returns floor(m_j * alpha) for alpha's decimal value: 0.29 of 100 is 29, though 100 * 0.29 < 29 in floats."""
    if alpha == 1:
        return capacities
    share = _fraction(float(alpha))
    return np.array([int(m) * share.numerator // share.denominator for m in capacities], np.int32)


@lru_cache
def _fraction(alpha: float) -> Fraction:
    return Fraction(repr(alpha))


def _finite(costs: Costs) -> Costs:
    """Returns costs in which forbidden places, of an infinite cost, are dearer than every assignment without them."""
    if costs.dtype.kind == "i" or not np.isposinf(costs).any():
        return costs
    wide = costs.astype(np.float64)
    forbidden = np.isposinf(wide)
    largest = float(wide[~forbidden].max(initial=0.0))
    dearer = 2 * len(wide) * largest + 1
    if not np.isfinite(dearer):
        raise InvalidArgument(
            f"costs go up to {largest:g} and some are inf (forbidden): scale them down, {len(wide)} of them have no sum"
        )
    return np.where(forbidden, dearer, wide)


def _cost(costs: Costs, assignment: NDArray[np.int32]) -> int | float:
    chosen = costs[np.arange(len(costs)), assignment]
    if costs.dtype.kind == "f" and np.isposinf(chosen).any():
        row = int(np.argmax(np.isposinf(chosen)))
        if np.isposinf(costs[row]).all():
            raise InvalidArgument(f"sample {row} may go to no worker: each of its costs is inf (forbidden)")
        raise InvalidArgument(
            f"sample {row} can only go to worker {assignment[row]}, whose cost for it is inf (forbidden): give workers "
            "that may take it more capacity, or alpha = 1, which finds every assignment that is allowed"
        )
    return int(chosen.sum(dtype=np.int64)) if costs.dtype.kind == "i" else float(chosen.sum(dtype=np.float64))
