"""Exact solvers of the capacitated k x n assignment problem, by name."""

from __future__ import annotations

from dispatcher.solvers.auto import AutoSolver
from dispatcher.solvers.cuda import CudaSolver
from dispatcher.solvers.native import NativeSolver
from dispatcher.solvers.protocol import AnyCosts, Costs, DeviceCosts, Prices, Solution, Solver
from services.domain.errors import InvalidArgument

__all__ = ["SOLVERS", "AnyCosts", "Costs", "DeviceCosts", "Prices", "Solution", "Solver", "get_solver"]

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
