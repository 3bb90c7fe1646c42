"""HybridDis (ESD §4.3, Algorithm 2): an exact solver for the samples that matter most, a heuristic for the rest."""

from __future__ import annotations

import time
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dispatcher.solvers.protocol import Costs, Prices, Solver
from esd_native import solver as native
from services.domain.errors import InvalidArgument
from services.domain.hybrid import HybridResult
from services.domain.jobs import MAX_WORKERS, Criterion

_INT32_MAX = 2**31 - 1


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

    Opt takes floor(capacities[j] * alpha) samples of every worker j: together those with the largest criterion. Heu
    gives the others, by descending criterion, each to the cheapest worker that still has room.

    Args:
        costs: [k, n], finite, not negative; integers up to 2^31 - 1, or floats. k >= 1, 1 <= n <= 64.
        capacities: integers [n], not negative, sum k.
        alpha: share of Opt, 0..1.
        criterion: which samples are Opt's.
        solver: solves Opt's part.
        prices: [n], optimal duals of an earlier, similar problem. Opt starts from them, and Heu orders and chooses
            by cost + price, which foresees that cheap workers fill up. Without them Heu is the paper's.

    Raises:
        InvalidArgument: an argument is not as above; the message names the value.
    """
    if not 0 <= alpha <= 1:
        raise InvalidArgument(f"alpha is {alpha}, it must be in 0..1")
    if not isinstance(criterion, Criterion):
        raise InvalidArgument(f"criterion is {criterion!r}, it must be one of {', '.join(map(str, Criterion))}")
    costs = _as_costs(costs)
    capacities = _as_capacities(capacities, *costs.shape)
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
        return HybridResult(assignment, _cost(costs, assignment), optimal_rows, "none", None, 0.0)

    started = time.perf_counter()
    solution = solver.solve(costs if taken == samples else costs[optimal_rows], optimal, prices)
    seconds = time.perf_counter() - started
    assignment[optimal_rows] = solution.assignment
    cost = solution.cost if taken == samples else _cost(costs, assignment)
    return HybridResult(assignment, cost, optimal_rows, solution.solver, solution.prices, seconds, solution.gap)


def _shares(capacities: NDArray[np.int32], alpha: float) -> NDArray[np.int32]:
    """floor(m_j * alpha) with alpha as it is written: 0.29 of 100 is 29, though 100 * 0.29 < 29 in floats."""
    if alpha == 1:
        return capacities
    share = _fraction(float(alpha))
    return np.array([int(m) * share.numerator // share.denominator for m in capacities], np.int32)


@lru_cache
def _fraction(alpha: float) -> Fraction:
    return Fraction(repr(alpha))


def _cost(costs: Costs, assignment: NDArray[np.int32]) -> int | float:
    chosen = costs[np.arange(len(costs)), assignment]
    return int(chosen.sum(dtype=np.int64)) if costs.dtype.kind == "i" else float(chosen.sum(dtype=np.float64))


def _as_costs(values: ArrayLike) -> Costs:
    costs = _as_array(values, "costs")
    if costs.ndim != 2:
        raise InvalidArgument(f"costs have shape {costs.shape}, they must be a matrix [k, n]")
    if len(costs) < 1:
        raise InvalidArgument("costs have 0 rows, at least one sample is needed")
    if not 1 <= costs.shape[1] <= MAX_WORKERS:
        raise InvalidArgument(f"costs have {costs.shape[1]} columns, the number of workers must be in 1..{MAX_WORKERS}")
    if costs.dtype == np.float32 or costs.dtype == np.float64:
        return np.ascontiguousarray(costs)
    if costs.dtype.kind not in "iu":
        raise InvalidArgument(f"costs have dtype {costs.dtype}, they must be integers, float32 or float64")
    if costs.dtype != np.int32:
        outside = (costs < 0) | (costs > _INT32_MAX)
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise InvalidArgument(
                f"costs[{row}, {column}] is {costs[row, column]}, integer costs must be in 0..2^31-1; "
                "scale them down or use floats"
            )
    return np.ascontiguousarray(costs, np.int32)


def _as_capacities(values: ArrayLike, samples: int, workers: int) -> NDArray[np.int32]:
    capacities = _as_array(values, "capacities")
    if capacities.shape != (workers,):
        raise InvalidArgument(f"capacities have shape {capacities.shape}, costs of {workers} workers need ({workers},)")
    if capacities.dtype.kind not in "iu":
        raise InvalidArgument(f"capacities have dtype {capacities.dtype}, they must be integers")
    for worker, capacity in enumerate(capacities.tolist()):
        if not 0 <= capacity <= samples:
            raise InvalidArgument(f"capacity of worker {worker} is {capacity}, it must be in 0..{samples}")
    if capacities.sum() != samples:
        raise InvalidArgument(
            f"capacities sum to {capacities.sum()}, they must sum to the number of samples, {samples}"
        )
    return capacities.astype(np.int32)


def _as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of unequal lengths
        raise InvalidArgument(f"{name} are no array: {error}") from None
