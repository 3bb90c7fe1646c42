"""Values of HybridDis (ESD §4.3, Algorithm 2): the problem that a caller poses, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import Criterion, check_choice
from esd.services.domain.worker_set import MAX_WORKERS

Costs = NDArray[np.float32] | NDArray[np.float64] | NDArray[np.int32]

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HybridProblem:
    """The assignment of k samples to n workers that one HybridDis call asks for.

    Attributes:
        costs: float32 or int32 [k, n].
        capacities: int32 [n], the number of samples for each worker.
        alpha: share of each capacity that the exact solver fills.
        criterion: selects the samples for the exact solver.
        solver: name of the exact solver.
    """

    costs: Costs
    capacities: NDArray[np.int32]
    alpha: float
    criterion: Criterion
    solver: str

    @classmethod
    def of(cls, costs: ArrayLike, capacities: ArrayLike, alpha: float, criterion: Criterion, solver: str) -> Self:
        """Makes a problem of costs, float32 or integers [k, n], and capacities, integers [n], in any form.

        Raises:
            InvalidArgument: an argument has the wrong shape or type, or is out of range; or costs are float64, which
                would have to be rounded.
        """
        given = as_costs(costs)
        if given.dtype == np.float64:
            raise InvalidArgument(
                f"costs are float64 {list(given.shape)}, they must be float32 or integers: "
                "np.float32(costs) rounds them"
            )
        check_choice(alpha, criterion)
        return cls(given, as_capacities(capacities, *given.shape), alpha, criterion, solver)


@dataclass(frozen=True, slots=True)
class HybridResult:
    """A dispatch decision for k samples and n workers.

    Attributes:
        assignment: int32 [k], worker of each sample.
        cost: sum of the chosen costs; int for integer costs.
        optimal_rows: uint32 [r], ascending: the samples that the exact solver assigned.
        solver: the algorithm that assigned them, "none" if r = 0.
        prices: int64 or float64 [n], optimal duals of the exact solver's part, None if r = 0; they can start the next
            decision.
        gap: cost of the exact solver's part less its dual bound; 0 proves it optimal.
        seconds: wall time in the solver.

    Example:
        >>> result = esd.hybrid_dis([[1, 5], [2, 9], [4, 4]], capacities=[2, 1])
        >>> result.assignment.tolist(), result.cost, result.gap
        ([0, 0, 1], 7, 0.0)
    """

    assignment: NDArray[np.int32]
    cost: int | float
    optimal_rows: NDArray[np.uint32]
    solver: str
    prices: NDArray[np.int64] | NDArray[np.float64] | None
    seconds: float
    gap: float = 0.0


def as_costs(values: ArrayLike) -> Costs:
    """Returns costs, [k, n], in the form of the solvers: integers as int32, floats unchanged.

    Raises:
        InvalidArgument: the values are not a matrix of numbers, k < 1, n is not in 1..128, or an integer is not in
            0..2^31 - 1.
    """
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


def as_capacities(values: ArrayLike, samples: int, workers: int) -> NDArray[np.int32]:
    """Returns capacities, int32 [n].

    Raises:
        InvalidArgument: the values are not integers [n], one is negative, or they do not sum to the samples.
    """
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
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidArgument(f"{name} are masked in places: fill these with values (a cost of inf is forbidden)")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of unequal lengths; a tensor that numpy cannot read
        raise InvalidArgument(f"{name} are no array: {error}") from None
