"""The CUDA solvers, as implementations of the Solver protocol."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.cuda.device import CudaDevice, open_device
from esd.dispatcher.solvers.cuda.kernel import Algorithm
from esd.dispatcher.solvers.exact import solve_exactly
from esd.dispatcher.solvers.native import NativeSolver
from esd.dispatcher.solvers.protocol import AnyCosts, Prices, Solution
from esd.native import solver as native
from esd.services.domain.errors import Internal, InvalidArgument
from esd.services.domain.hybrid import Costs

_log = logging.getLogger(__name__)

_KERNEL_COSTS = (np.int32, np.float32, np.float64)
_MAX_ENTRIES = 2**30  # entries of a matrix, which the kernel indexes by int32
MAX_WORKERS = 64  # a set of workers is one word in the kernel


class CudaSolver:
    """Solves in one launch on a CUDA device, by one block up to 8192 samples and by a cooperative grid beyond.

    `hungarian-cuda` is the Hungarian algorithm of the paper (Chinese edition §3.4) without its k x k matrix.
    `dual-cuda` is dual steepest ascent, which switches to the Hungarian algorithm when it would need too many steps.
    No other solver answers in their place: without a device, `solve` raises Unavailable.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm

    @property
    def name(self) -> str:
        """See Solver.name."""
        return f"{self._algorithm}-cuda"

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """See Solver.solve. The Hungarian algorithm ignores `prices`."""
        open_on = open_device()
        if isinstance(costs, np.ndarray) or not np.issubdtype(open_on.view(costs).dtype, np.floating):
            given: AnyCosts = costs
        else:
            given = to_host(costs)  # whether fixed point holds floats is seen on the host
        if not isinstance(given, np.ndarray):
            return self.solve_on(open_on, given, capacities, prices)[0]
        return solve_exactly(
            lambda each, start: self.solve_on(open_on, each if each is not given else costs, capacities, start)[0],
            given,
            prices,
        )

    def solve_on(
        self, device: CudaDevice, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None
    ) -> tuple[Solution, float]:
        """Solves on the given device, like Solver.solve.

        Returns:
            The solution, and the running time of the kernel in milliseconds.
        """
        checked = costs if isinstance(costs, np.ndarray) else device.view(costs)
        check(checked.shape, checked.dtype, capacities, prices)
        start = None if prices is None else np.asarray(prices, np.float64)
        answer, milliseconds = device.solve(costs, capacities, start, self._algorithm)
        if answer.bad_entry is not None:
            NativeSolver("auto").solve(to_host(costs), capacities)  # raises the error that names the cost
            raise Internal(f"{self.name} refuses entry {answer.bad_entry} of costs that the CPU takes")
        solution = answer.solution()
        if solution.gap != 0:
            raise Internal(f"{self.name} left a gap of {solution.gap} between its assignment and its dual bound")
        return solution, milliseconds


def check(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], capacities: NDArray[np.int32], prices: Prices | None
) -> None:
    """Checks all arguments except the values of the costs, which the kernel checks. Raises InvalidArgument."""
    if len(shape) != 2:
        raise InvalidArgument(f"costs have shape {tuple(shape)}, they must be a matrix [k, n]")
    if dtype not in _KERNEL_COSTS:
        raise InvalidArgument(f"costs have dtype {dtype}, costs must be int32, float32 or float64")
    samples, workers = shape
    check_workers(workers)
    if samples * workers > _MAX_ENTRIES:
        raise InvalidArgument(
            f"costs have {samples} x {workers} entries, a CUDA solver takes at most 2^30; use a CPU solver"
        )
    try:
        native.check(samples, workers, capacities, prices)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def check_workers(workers: int) -> None:
    """Raises InvalidArgument for more workers than a CUDA solver takes."""
    if workers > MAX_WORKERS:
        raise InvalidArgument(
            f"there are {workers} workers, a CUDA solver takes at most {MAX_WORKERS}; use a CPU solver (solver, "
            "--solver: auto, dual or paths)"
        )


def to_host(costs: AnyCosts) -> Costs:
    """Returns the costs in host memory: a copy of costs on a device, and a numpy array unchanged."""
    if isinstance(costs, np.ndarray):
        return costs
    return open_device().download(costs)
