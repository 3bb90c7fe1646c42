"""The solver that takes the fastest of the others; they all give the same answer."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dispatcher.solvers.cuda.solver import CudaSolver, to_host
from dispatcher.solvers.native import NativeSolver
from dispatcher.solvers.protocol import AnyCosts, Prices, Solution

# Entries of a matrix on the device from which it is solved there; below, fetching it and solving on the CPU is quicker.
# An estimate until `esd bench solver` has run on a device: see docs/solvers.md.
DEVICE_ENTRIES = 1 << 13


class AutoSolver:
    """Costs in host memory are solved on the CPU, costs on a device there unless they are few."""

    name = "auto"

    def __init__(self) -> None:
        self._cpu = NativeSolver("auto")
        self._device = CudaSolver("dual")

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """See Solver.solve."""
        if isinstance(costs, np.ndarray):
            return self._cpu.solve(costs, capacities, prices)
        if math.prod(costs.shape) < DEVICE_ENTRIES:
            return self._cpu.solve(to_host(costs), capacities, prices)
        return self._device.solve(costs, capacities, prices)
