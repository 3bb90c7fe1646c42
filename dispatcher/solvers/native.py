"""The exact solvers on the CPU, which are in the native extension (native/solver)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.exact import solve_exactly
from esd.dispatcher.solvers.protocol import AnyCosts, Prices, Solution
from esd.native import solver as native
from esd.services.domain.errors import Internal, InvalidArgument
from esd.services.domain.hybrid import Costs


class NativeSolver:
    """Solves on one CPU thread.

    `dual` is dual steepest ascent, which switches to `paths` when prices would need many small steps. `paths` is
    multilevel successive shortest paths. `auto` starts with `dual` for integer costs and with `paths` otherwise.
    """

    def __init__(self, name: Literal["auto", "dual", "paths"]) -> None:
        self._name = name

    @property
    def name(self) -> Literal["auto", "dual", "paths"]:
        """See Solver.name."""
        return self._name

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        """See Solver.solve."""
        if not isinstance(costs, np.ndarray):
            raise InvalidArgument(f"costs are a {type(costs).__name__}, solver {self.name!r} takes numpy arrays only")
        return solve_exactly(lambda each, start: self._solve(each, capacities, start), costs, prices)

    def _solve(self, costs: Costs, capacities: NDArray[np.int32], prices: Prices | None) -> Solution:
        try:
            found = native.solve(costs, capacities, prices, self._name)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None
        if found.gap != 0:
            raise Internal(f"{found.algorithm} left a gap of {found.gap} between its assignment and its dual bound")
        return Solution(found.assignment, found.cost, found.prices, found.gap, found.algorithm)
