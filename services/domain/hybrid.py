"""HybridDis as values (ESD §4.3, Algorithm 2): the problem that a caller poses, and the answer to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.domain.jobs import Criterion


@dataclass(frozen=True, slots=True)
class HybridProblem:
    """The assignment of k samples to n workers that one HybridDis call asks for.

    Attributes:
        costs: float32 or int32 [k, n].
        capacities: int32 [n], how many samples each worker takes.
        alpha: share of each capacity that the exact solver fills.
        criterion: which rows of the costs the exact solver takes.
        solver: its name.
    """

    costs: NDArray[np.float32] | NDArray[np.int32]
    capacities: NDArray[np.int32]
    alpha: float
    criterion: Criterion
    solver: str


@dataclass(frozen=True, slots=True)
class HybridResult:
    """A dispatch decision for k samples and n workers.

    Attributes:
        assignment: int32 [k], worker of each sample.
        cost: sum of the chosen costs; int for integer costs.
        optimal_rows: uint32 [r], ascending: the samples that the exact solver decided.
        solver: the algorithm that decided them, "none" when r = 0.
        prices: int64 or float64 [n], optimal duals of the exact solver's part, None when r = 0; a start for the next
            decision.
        gap: cost of the exact solver's part less its dual bound; 0 proves it optimal.
        seconds: wall time in the solver.
    """

    assignment: NDArray[np.int32]
    cost: int | float
    optimal_rows: NDArray[np.uint32]
    solver: str
    prices: NDArray[np.int64] | NDArray[np.float64] | None
    seconds: float
    gap: float = 0.0
