"""What an exact solver is: the problem that it takes, and the solution that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64]


class DeviceCosts(Protocol):
    """Costs on a CUDA device: anything that exports DLPack, as a torch tensor does."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Samples and workers, (k, n)."""

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __dlpack__(self, *, stream: int | None = None) -> object: ...


AnyCosts = Costs | DeviceCosts
Prices = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimal assignment of k samples to n workers.

    Attributes:
        assignment: int32 [k], worker of each sample. Every solver gives the same one.
        cost: sum of the chosen costs; int for integer costs.
        prices: int64 or float64 [n], optimal duals: each sample sits at a worker with the least cost + price.
            A good start for the next, similar problem.
        gap: cost minus the dual bound; 0 proves optimality.
        solver: name of the algorithm that reached the optimum.
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
        """The name `get_solver` knows it by."""

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """Assigns every sample to one worker, worker j capacities[j] times, at the least total cost.

        Args:
            costs: int32, float32 or float64 [k, n], C-contiguous, finite, not negative; k >= 1, 1 <= n <= 64. The
                CPU solvers take numpy arrays; "auto" and the CUDA solvers also what is on their device, without a copy.
            capacities: int32 [n], not negative, sum k.
            prices: [n], where to start; changes the time, never the result.

        Raises:
            InvalidArgument: an argument is not as above; the message names the value.
        """
