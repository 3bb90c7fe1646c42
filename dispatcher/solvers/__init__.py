"""Exact solvers of the capacitated k x n assignment problem, by name."""

from __future__ import annotations

from dispatcher.solvers.auto import AutoSolver
from dispatcher.solvers.cuda import CudaSolver
from dispatcher.solvers.cuda.device import open_device
from dispatcher.solvers.native import NativeSolver
from dispatcher.solvers.protocol import AnyCosts, Costs, DeviceCosts, Prices, Solution, Solver
from services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

__all__ = [
    "SOLVERS",
    "AnyCosts",
    "Costs",
    "DeviceCosts",
    "Prices",
    "Solution",
    "Solver",
    "get_solver",
    "get_training_solver",
]

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
    """The solver called `name`, one of SOLVERS; InvalidArgument for any other name."""
    if name not in _SOLVERS:
        raise InvalidArgument(f"solver {name!r} is unknown, it must be one of {', '.join(SOLVERS)}")
    return _SOLVERS[name]


def get_training_solver(name: str) -> Solver:
    """The solver that a job names, which must be able to run here.

    A CUDA solver that is asked for a single problem leaves it to the CPU where there is no device. A job that names one
    is refused instead, so that nobody trains on another solver than the one that was named.

    Raises:
        InvalidArgument: the name is not in SOLVERS.
        FailedPrecondition: it is the name of a CUDA solver, and there is no device; the message says what is missing.
    """
    solver = get_solver(name)
    if isinstance(solver, CudaSolver):
        try:
            open_device()
        except Unavailable as reason:
            raise FailedPrecondition(
                f"solver {name} needs a CUDA device (solver, --solver: auto, dual and paths need none): {reason}"
            ) from None
    return solver
