"""What an exact solver is: the problem that it takes, and the solution that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.hybrid import Costs


class DeviceCosts(Protocol):
    """Costs on a CUDA device: anything that exports DLPack, as a torch tensor does, int32 or float [k, n]."""

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
        assignment: int32 [k], the worker of each sample. Every solver gives the same one.
        cost: the sum of the costs of the assignment, an int for integer costs.
        prices: [n], optimal duals: each sample sits at a worker with the least cost + price. They are int64 for integer
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
        """The name by which `get_solver` finds this solver."""

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """Assigns every sample to one worker, worker j capacities[j] times, at the least total cost.

        Args:
            costs: int32, float32 or float64 [k, n], C-contiguous, finite, not negative; k >= 1, 1 <= n <= 64. The
                CPU solvers take numpy arrays only; "auto" and the CUDA solvers also take costs on their device, without
                a copy.
            capacities: int32 [n], not negative, sum k.
            prices: [n], where the search starts. They change the time that it takes, never the result.

        Raises:
            InvalidArgument: an argument is not as above; the message names the value.
            Unavailable: the costs are on a device that cannot be opened.
        """
