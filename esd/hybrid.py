"""HybridDis on arrays: solves one assignment in this process, without a dispatcher."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from esd.dispatcher.core.hybrid import hybrid_dis as decide
from esd.dispatcher.solvers import open_solver
from esd.services.domain.hybrid import HybridResult
from esd.services.domain.mechanisms import Criterion


def hybrid_dis(
    costs: ArrayLike,
    capacities: ArrayLike,
    *,
    alpha: float = 1.0,
    criterion: Criterion = Criterion.MIN2_MIN,
    solver: str = "auto",
) -> HybridResult:
    """Assigns k samples to n workers (ESD §4.3, Algorithm 2). `DispatcherClient` has the same method.

    The exact solver gives floor(capacities[j] * alpha) samples to every worker j: the samples with the largest
    criterion. The other samples follow in descending order of the criterion, each to the cheapest worker with room.

    Args:
        costs: [k, n], not negative; integers up to 2^31 - 1, float32 or float64. k >= 1; 1 <= n <= 128, with a CUDA
            solver 64. An infinite cost forbids a worker to take a sample.
        capacities: integers [n], not negative, sum k.
        alpha: share of the samples for the exact solver, 0..1.
        criterion: ranks the samples for the exact solver.
        solver: `auto`, `dual`, `paths`, or with a CUDA device `dual-cuda` or `hungarian-cuda`.

    Raises:
        InvalidArgument: an argument violates the limits above, or no assignment without a forbidden place was found;
            the message names the value.
        FailedPrecondition: the solver needs a CUDA device, and no device can be opened.

    Example:
        >>> costs = [[1, 5], [2, 9], [4, 4]]  # of 3 samples at 2 workers
        >>> esd.hybrid_dis(costs, capacities=[2, 1]).assignment.tolist()
        [0, 0, 1]
    """
    return decide(costs, capacities, alpha, criterion, open_solver(solver, np.size(capacities)))
