"""HybridDis on arrays: one assignment, solved in this process, without a dispatcher."""

from __future__ import annotations

from numpy.typing import ArrayLike

from esd.dispatcher.core.hybrid import hybrid_dis as decide
from esd.dispatcher.solvers import get_solver
from esd.services.domain.hybrid import HybridResult
from esd.services.domain.jobs import Criterion


def hybrid_dis(
    costs: ArrayLike,
    capacities: ArrayLike,
    *,
    alpha: float = 1.0,
    criterion: Criterion = Criterion.MIN2_MIN,
    solver: str = "auto",
) -> HybridResult:
    """Assigns k samples to n workers (ESD §4.3, Algorithm 2). A dispatcher's client has the same method.

    The exact solver assigns floor(capacities[j] * alpha) samples of every worker j, together those that matter most by
    the criterion. The others go, in descending order of the criterion, each to the cheapest worker with room left.

    Args:
        costs: [k, n], finite, not negative; integers up to 2^31 - 1, float32 or float64. k >= 1, 1 <= n <= 64.
        capacities: integers [n], not negative, sum k.
        alpha: share of the samples that the exact solver assigns, 0..1.
        criterion: which samples are the exact solver's.
        solver: `auto`, `dual`, `paths`, or with a CUDA device `dual-cuda` or `hungarian-cuda`.

    Raises:
        InvalidArgument: an argument is not as above; the message names the value.
    """
    return decide(costs, capacities, alpha, criterion, get_solver(solver))
