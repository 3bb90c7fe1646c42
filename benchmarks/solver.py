"""Solve times of the assignment solvers: `esd bench solver`.

Every case is one cost matrix of k = n m rows. A CPU solver's time is the processor time of one solve on one thread, so
that a busy machine does not blur it. Building the matrix and the preparation of a yardstick are left out. The time of a
CUDA solver is wall time from the call to the answer on the host, with the costs uploaded or, `-resident`, on the device
already. Optimality is checked against a certified optimum.
"""

from __future__ import annotations

import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.yardsticks import Run, installed
from esd.dispatcher.solvers import SOLVERS, get_solver
from esd.dispatcher.solvers.cuda import CudaSolver
from esd.dispatcher.solvers.cuda.device import CudaDevice, open_device
from esd.services.domain.errors import InvalidArgument, Unavailable
from testbed.cost_families import FAMILIES, Costs

_log = logging.getLogger(__name__)

WORKERS = (4, 8, 16, 32, 64)
BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
LARGEST_MATRIX = 1 << 22  # entries of a default case
LIMIT_SECONDS = 480.0  # wall time after which no further case starts

# ESD Table 2, ms for n = 8 by batch size per worker: its serial and its CUDA Hungarian algorithm (RTX 4090).
PAPER_SERIAL = {32: 9, 64: 62, 128: 528, 256: 3360, 512: 50976, 1024: 134986}
PAPER_CUDA = {32: 21, 64: 28, 128: 82, 256: 186, 512: 811, 1024: 1385}

Prepare = Callable[[], Run | None]

WARM = "-warm"  # suffix of a solver that starts from the optimal prices of another draw of the family
RESIDENT = "-resident"  # suffix of a CUDA solver whose costs are on the device already
_CUDA = {solver.name: solver for solver in (CudaSolver("dual"), CudaSolver("hungarian"))}
CPU_SOLVERS = tuple(name for name in SOLVERS if name not in _CUDA)


@dataclass(frozen=True, slots=True)
class Result:
    """One solver on one instance.

    Attributes:
        solver: its name.
        n: workers.
        k: samples.
        family: of the costs.
        ms_median: over the solves; ms_min and ms_max likewise.
        runs: solves.
        optimal: the total cost is the optimum.
        kernel_ms: median time that the device computed; None on the CPU.
    """

    solver: str
    n: int
    k: int
    family: str
    ms_median: float
    ms_min: float
    ms_max: float
    runs: int
    optimal: bool
    kernel_ms: float | None = None


def default_solvers() -> tuple[str, ...]:
    """Lists our solvers, cold and warm and on a device if there is one, and the yardsticks that are installed."""
    on_device = [name + suffix for name in _CUDA for suffix in ("", RESIDENT)] if device() else []
    return (*CPU_SOLVERS, "dual" + WARM, *on_device, *installed())


@cache
def device() -> CudaDevice | None:
    """Returns the CUDA device, if there is one."""
    try:
        return open_device()
    except Unavailable:
        return None


def run(
    workers: Sequence[int] = WORKERS,
    batches: Sequence[int] = BATCHES,
    families: Sequence[str] = tuple(FAMILIES),
    solvers: Sequence[str] | None = None,
    *,
    seconds: float = 0.02,
    largest_matrix: int = LARGEST_MATRIX,
    limit_seconds: float = LIMIT_SECONDS,
) -> Iterator[Result]:
    """Measures every combination; a yardstick only where it is quick enough.

    Args:
        workers: values of n.
        batches: values of m; k = n m.
        families: names of FAMILIES.
        solvers: names of default_solvers(); all by default.
        seconds: time to spend on repeating one case; it is solved at least 3 times, or once above this time.
        largest_matrix: cases with more entries k n than this are left out.
        limit_seconds: wall time after which no further case starts; the log names the cases left out.

    Raises:
        InvalidArgument: the name of a family or a solver is unknown.
    """
    solvers = default_solvers() if solvers is None else solvers
    for kind, names, known in (("family", families, tuple(FAMILIES)), ("solver", solvers, default_solvers())):
        for name in names:
            if name not in known:
                raise InvalidArgument(f"{kind} {name!r} is unknown or not installed here, known are {', '.join(known)}")
    cases = [(n, m, f) for n, m, f in itertools.product(workers, batches, families) if n * n * m <= largest_matrix]
    cases.sort(key=lambda case: case[0] ** 2 * case[1])  # so that a busy machine leaves out the largest
    end = time.monotonic() + limit_seconds
    for done, (n, m, family) in enumerate(cases):
        if time.monotonic() > end:
            _log.warning(
                "%d of %d cases left out after %g s; choose some with --workers, --batch, --family, --solvers",
                len(cases) - done,
                len(cases),
                limit_seconds,
            )
            return
        yield from _case(n, m, family, solvers, seconds)


def _case(n: int, m: int, family: str, solvers: Sequence[str], seconds: float) -> Iterator[Result]:
    """Yields all solvers on one instance."""
    k = n * m
    rng = np.random.default_rng([n, m, *family.encode()])
    costs, earlier = FAMILIES[family](k, n, rng), FAMILIES[family](k, n, rng)
    capacities = np.full(n, m, np.int32)
    reference = get_solver("paths").solve(costs, capacities)  # carries its own certificate
    tolerance = 1e-12 if costs.dtype == np.int32 else 1e-6
    yardsticks = installed()
    for solver in solvers:
        kernel_ms: list[float] = []
        cuda = solver.removesuffix(RESIDENT) in _CUDA
        if cuda:
            prepare: Prepare = _on_device(solver, costs, capacities, kernel_ms)
        elif solver not in yardsticks:
            prepare = _ours(solver, costs, capacities, earlier)
        elif yardsticks[solver].takes(k, n):
            prepare = partial(yardsticks[solver].prepare, costs, capacities)
        else:
            continue
        times, total = measure(prepare, seconds, time.perf_counter if cuda else time.thread_time)
        if times:
            optimal = math.isclose(total, reference.cost, rel_tol=tolerance)
            ms = [1e3 * t for t in times]
            kernel = statistics.median(kernel_ms) if kernel_ms else None
            yield Result(solver, n, k, family, statistics.median(ms), min(ms), max(ms), len(ms), optimal, kernel)


def _on_device(name: str, costs: Costs, capacities: NDArray[np.int32], kernel_ms: list[float]) -> Prepare:
    solver, where = _CUDA[name.removesuffix(RESIDENT)], open_device()
    given = where.upload(costs) if name.endswith(RESIDENT) else costs
    solver.solve(given, capacities)  # compiles the kernel, if this is its first use

    def solve() -> float:
        solution, milliseconds = solver.solve_on(where, given, capacities)
        kernel_ms.append(milliseconds)
        return solution.cost

    return lambda: solve


def _ours(name: str, costs: Costs, capacities: NDArray[np.int32], earlier: Costs) -> Prepare:
    solver = get_solver(name.removesuffix(WARM))
    prices = solver.solve(earlier, capacities).prices if name.endswith(WARM) else None

    def solve() -> float:
        return solver.solve(costs, capacities, prices).cost

    return lambda: solve


def measure(prepare: Prepare, seconds: float, clock: Callable[[], float]) -> tuple[list[float], float]:
    """Returns the times of repeated solves, and the total cost; no times where the solver cannot take the instance."""
    times: list[float] = []
    total = float("nan")
    while not times or (sum(times) < seconds and len(times) < 100) or (len(times) < 3 and times[0] < seconds):
        prepared = prepare()
        if prepared is None:
            break
        started = clock()
        total = prepared()
        times.append(clock() - started)
    return times, total


def report(results: Sequence[Result]) -> str:
    """Returns a Markdown table: one line per instance, one column per solver, median ms; `!` marks a wrong optimum."""
    solvers = list(dict.fromkeys(r.solver for r in results))
    cells: dict[tuple[int, int, str], dict[str, str]] = {}
    for r in results:
        line = cells.setdefault((r.n, r.k, r.family), {})
        line[r.solver] = f"{r.ms_median:.3g}{'' if r.optimal else ' !'}"
    lines = [
        "| n | m | costs | " + " | ".join(solvers) + " | paper, serial | paper, CUDA |",
        "|---" * (5 + len(solvers)) + "|",
    ]
    for (n, k, family), line in cells.items():
        paper = [str(t.get(k // n, "")) if n == 8 and family == "esd" else "" for t in (PAPER_SERIAL, PAPER_CUDA)]
        lines.append(f"| {n} | {k // n} | {family} | " + " | ".join([line.get(s, "") for s in solvers] + paper) + " |")
    return "\n".join(lines)
