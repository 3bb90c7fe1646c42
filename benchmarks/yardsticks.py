"""Published solvers with one interface, for comparison with ours.

A yardstick prepares an instance, which is not timed, and returns a call that is timed and gives the total cost. The
libraries are optional: `pip install .[bench]`, and for ortools `pip install --no-deps ortools`, whose pinned protobuf
is older than ours and not needed by its flow solver. The serial Hungarian algorithm of the ESD paper is built from
native/yardsticks.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.cost_families import Costs
from testbed.native_targets import built

Run = Callable[[], float]
Prepare = Callable[[Costs, NDArray[np.int32]], Run | None]


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A published solver.

    Attributes:
        library: the module it needs; empty: none.
        largest: entries of the matrix it works on, up to which a solve takes seconds at most.
        expands: it works on the k x k matrix, not on k x n.
        prepare: returns the timed part, or None where the solver cannot take the instance.
    """

    library: str
    largest: int
    expands: bool
    prepare: Prepare

    def takes(self, k: int, n: int) -> bool:
        """Tells whether an instance of k samples and n workers is small enough."""
        return k * (k if self.expands else n) <= self.largest


def _expanded(costs: Costs, capacities: NDArray[np.int32]) -> NDArray[np.float64]:
    """Makes the paper's square matrix (§4.3): every column as often as its capacity."""
    return np.ascontiguousarray(np.repeat(costs, capacities, axis=1), np.float64)


def serial_hungarian(costs: Costs, capacities: NDArray[np.int32]) -> Run:
    """The paper's own yardstick (Table 2): the Hungarian algorithm on one thread, on the expanded matrix."""
    solve = ctypes.CDLL(str(built("hungarian", "yardsticks"))).esd_hungarian
    square = _expanded(costs, capacities)
    k = len(square)
    columns = np.empty(k, np.int32)

    def run() -> float:
        solve(ctypes.c_void_p(square.ctypes.data), ctypes.c_int32(k), ctypes.c_void_p(columns.ctypes.data))
        return float(square[np.arange(k), columns].sum())

    return run


def scipy_assignment(costs: Costs, capacities: NDArray[np.int32]) -> Run:
    """Scipy's linear_sum_assignment, a shortest-augmenting-path solver, on the expanded matrix."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - optional

    square = _expanded(costs, capacities)
    return lambda: float(square[linear_sum_assignment(square)].sum())


def lapx_lapjv(costs: Costs, capacities: NDArray[np.int32]) -> Run:
    """Jonker and Volgenant's algorithm (lapx) on the expanded matrix."""
    import lap  # noqa: PLC0415 - optional

    square = _expanded(costs, capacities)
    return lambda: float(lap.lapjv(square)[0])


def pot_emd(costs: Costs, capacities: NDArray[np.int32]) -> Run:
    """Prepares the network simplex of Python Optimal Transport on k x n."""
    import ot  # noqa: PLC0415 - optional

    supply, demand, matrix = np.ones(len(costs)), capacities.astype(np.float64), costs.astype(np.float64)
    return lambda: float(ot.emd2(supply, demand, matrix, numItermax=10_000_000))


def ortools_flow(costs: Costs, capacities: NDArray[np.int32]) -> Run | None:
    """Prepares the cost-scaling push-relabel of ortools (SimpleMinCostFlow) on k x n; integers only."""
    from ortools.graph.python import min_cost_flow  # noqa: PLC0415 - optional

    if costs.dtype != np.int32:
        return None
    k, n = costs.shape
    flow = min_cost_flow.SimpleMinCostFlow()
    tails = np.repeat(np.arange(k, dtype=np.int32), n)
    heads = np.tile(np.arange(k, k + n, dtype=np.int32), k)
    flow.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(k * n, np.int64), costs.ravel().astype(np.int64))
    flow.set_nodes_supplies(np.arange(k + n, dtype=np.int32), np.concatenate([np.ones(k, np.int64), -capacities]))

    def run() -> float:
        flow.solve()
        return float(flow.optimal_cost())

    return run


YARDSTICKS = {
    "hungarian": Yardstick("", 1 << 20, True, serial_hungarian),
    "scipy": Yardstick("scipy", 1 << 20, True, scipy_assignment),
    "lapx": Yardstick("lap", 1 << 22, True, lapx_lapjv),
    "pot": Yardstick("ot", 1 << 17, False, pot_emd),
    "ortools": Yardstick("ortools", 1 << 19, False, ortools_flow),
}


def installed() -> dict[str, Yardstick]:
    """Returns the yardsticks whose library is there, by name."""
    return {name: y for name, y in YARDSTICKS.items() if not y.library or importlib.util.find_spec(y.library)}
