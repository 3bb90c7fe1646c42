"""Exact solvers of the capacitated k x n assignment problem (Opt of ESD §4.3), by name.

All solvers return the same assignment, so a name selects the processor and the speed, never the result. docs/solvers.md
compares them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.cuda import MAX_WORKERS, CudaSolver, check_workers, to_host
from esd.dispatcher.solvers.cuda.device import open_device
from esd.dispatcher.solvers.native import NativeSolver
from esd.dispatcher.solvers.protocol import AnyCosts, DeviceCosts, Prices, Solution, Solver
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.hybrid import Costs

__all__ = [
    "DEVICE_SAMPLES",
    "SOLVERS",
    "AnyCosts",
    "Costs",
    "DeviceCosts",
    "Prices",
    "Solution",
    "Solver",
    "get_solver",
    "open_solver",
]

# From this number of samples per worker on, costs on the device are solved there. It is faster to copy fewer to the
# host and solve them on the CPU (benchmarks/device_limit.py, docs/solvers.md).
DEVICE_SAMPLES = 512


class AutoSolver:
    """Solves costs in host memory on the CPU, and costs on a device on that device, unless the matrix is small."""

    name = "auto"

    def __init__(self) -> None:
        self._cpu = NativeSolver("auto")
        self._device = CudaSolver("dual")

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """See Solver.solve."""
        if isinstance(costs, np.ndarray):
            return self._cpu.solve(costs, capacities, prices)
        samples, workers = costs.shape
        if samples < DEVICE_SAMPLES * workers or workers > MAX_WORKERS:
            return self._cpu.solve(to_host(costs), capacities, prices)
        return self._device.solve(costs, capacities, prices)


_SOLVERS: dict[str, Solver] = {
    solver.name: solver
    for solver in (
        AutoSolver(),
        NativeSolver("dual"),
        NativeSolver("paths"),
        CudaSolver("dual"),
        CudaSolver("hungarian"),
    )
}
SOLVERS = tuple(_SOLVERS)


def get_solver(name: str) -> Solver:
    """Returns the solver with a name in SOLVERS. Raises InvalidArgument for any other name."""
    if name not in _SOLVERS:
        raise InvalidArgument(f"solver {name!r} is unknown, it must be one of {', '.join(SOLVERS)}")
    return _SOLVERS[name]


def open_solver(name: str, workers: int) -> Solver:
    """Returns the solver that a job or a call names, after a check that it can run on this machine.

    So no other solver than the named one ever answers, also where the heuristic assigns every sample.

    Raises:
        InvalidArgument: the name is not in SOLVERS, or the solver does not take as many workers.
        FailedPrecondition: the name is a CUDA solver's, and no device can be opened; the message gives the reason.
    """
    solver = get_solver(name)
    if isinstance(solver, CudaSolver):
        check_workers(workers)
        try:
            open_device()
        except Unavailable as reason:
            raise FailedPrecondition(
                f"solver {name} needs a CUDA device (solver, --solver: auto, dual and paths need none): {reason}"
            ) from None
    return solver
