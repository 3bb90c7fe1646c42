"""The interface of exact solvers: the problem, and the solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.hybrid import Costs


class DeviceCosts(Protocol):
    """Costs on a CUDA device: an object that exports DLPack, such as a torch tensor, int32 or float [k, n]."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of samples k and of workers n."""

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __dlpack__(self, *, stream: int | None = None) -> object: ...


AnyCosts = Costs | DeviceCosts
Prices = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimal assignment of k samples to n workers.

    Attributes:
        assignment: int32 [k], the worker of each sample. Every solver returns the same assignment.
        cost: the sum of the costs of the assignment, an int for integer costs.
        prices: [n], optimal duals: the worker of each sample has the least cost + price. They are int64 for integer
            costs, float64 otherwise, and a good start for the next, similar problem.
        gap: cost minus the dual bound; 0 proves the optimum.
        solver: the name of the algorithm that reached the optimum.
    """

    assignment: NDArray[np.int32]
    cost: int | float
    prices: Prices
    gap: float
    solver: str


class Solver(Protocol):
    """Solves the capacitated assignment problem exactly (Opt of ESD §4.3)."""

    @property
    def name(self) -> str:
        """The name of this solver for `get_solver`."""

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """Assigns every sample to one worker, worker j capacities[j] times, at the least total cost.

        Args:
            costs: int32, float32 or float64 [k, n], C-contiguous, finite, not negative; k >= 1, 1 <= n <= 128, and
                n <= 64 on a CUDA device. The CPU solvers take numpy arrays only; "auto" and the CUDA solvers also take
                costs on their device, without a copy.
            capacities: int32 [n], not negative, sum k.
            prices: [n], the start of the search. Prices change its time, never the result.

        Raises:
            InvalidArgument: an argument violates the limits above; the message names the value.
            Unavailable: the costs are on a device that cannot be opened.
        """
