"""ESD Fig. 6: the savings by the share of the exact solver (alpha), and the GPU time it takes: `esd bench alpha`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.dispatch.cases import WORKERS, Stream, make_planner, open_stream
from benchmarks.solver import device
from esd.dispatcher.core.hybrid import hybrid_dis
from esd.dispatcher.simulator.simulate import simulate, trace_batches
from esd.dispatcher.solvers import AnyCosts, Solution
from esd.dispatcher.solvers.cuda import CudaSolver
from esd.dispatcher.solvers.cuda.device import CudaDevice
from esd.dispatcher.solvers.protocol import Prices
from esd.services.domain.mechanisms import Criterion, EsdOptions, LaiaOptions, LaiaReading, MechanismOptions
from testbed.cost_families import FAMILIES

ALPHAS = (1.0, 0.5, 0.25, 0.125, 0.0)
BATCHES = (128, 256)  # samples per worker
_SOLVES = 5


@dataclass(frozen=True, slots=True)
class AlphaResult:
    """One alpha at one batch size, n = 8.

    Attributes:
        samples_per_worker: m.
        alpha: share of Opt.
        saved_against_random: share of the transmission cost of random dispatch of the same stream; negative: dearer.
        saved_against_laia_text: likewise, of LAIA's by Herald's text.
        saved_against_laia_code: likewise, of LAIA's by Herald's code.
        kernel_ms: time that hungarian-cuda computes for one decision; None without a device.
        multiprocessor_share: of the device that it occupies meanwhile; None without a device.
    """

    samples_per_worker: int
    alpha: float
    saved_against_random: float
    saved_against_laia_text: float
    saved_against_laia_code: float
    kernel_ms: float | None
    multiprocessor_share: float | None


def run(iterations: int, batches: Sequence[int] = BATCHES, alphas: Sequence[float] = ALPHAS) -> Iterator[AlphaResult]:
    """Simulates `iterations` iterations of synthetic Criteo from cold caches, over 4 links of 5 and 4 of 0.5 Gbit/s."""
    stream = open_stream("synthetic:criteo", iterations * max(batches) * WORKERS)
    for samples_per_worker in batches:
        random = _cost(stream, samples_per_worker, iterations, "random")
        by_text, by_code = (
            _cost(stream, samples_per_worker, iterations, "laia", LaiaOptions(reading))
            for reading in (LaiaReading.TEXT, LaiaReading.CODE)
        )
        for alpha in alphas:
            cost = _cost(stream, samples_per_worker, iterations, "esd", EsdOptions(alpha))
            kernel_ms, share = _device_use(samples_per_worker, alpha)
            saved = (1 - cost / random, 1 - cost / by_text, 1 - cost / by_code)
            yield AlphaResult(samples_per_worker, alpha, *saved, kernel_ms, share)


def _cost(
    stream: Stream,
    samples_per_worker: int,
    iterations: int,
    mechanism: str,
    options: MechanismOptions | None = None,
) -> float:
    planner = make_planner(
        mechanism,
        fields=stream.ids.shape[1],
        samples_per_worker=samples_per_worker,
        cache_rows=stream.cache_rows,
        options=options,
    )
    size = planner.job.batch_size
    return simulate(planner, trace_batches(stream.ids[: iterations * size], size)).cost_seconds


class _Timed:
    """Solves Opt's part on the device and keeps the times."""

    name = "hungarian-cuda"

    def __init__(self, where: CudaDevice) -> None:
        self._where = where
        self._solver = CudaSolver("hungarian")
        self.kernel_ms: list[float] = []

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        solution, milliseconds = self._solver.solve_on(self._where, costs, capacities, prices)
        self.kernel_ms.append(milliseconds)
        return solution


def _device_use(samples_per_worker: int, alpha: float) -> tuple[float | None, float | None]:
    where = device()
    if where is None:
        return None, None
    timed = _Timed(where)
    costs = FAMILIES["cached"](samples_per_worker * WORKERS, WORKERS, np.random.default_rng(0))
    capacities = np.full(WORKERS, samples_per_worker, np.int32)
    for _ in range(_SOLVES):
        hybrid_dis(costs, capacities, alpha, Criterion.MIN2_MIN, timed)
    return (min(timed.kernel_ms), 1 / where.multiprocessors) if timed.kernel_ms else (0.0, 0.0)
