"""Up to which size costs on a device are solved faster on the CPU, copied there: `python -m benchmarks.device_limit`.

`auto` decides by `DEVICE_SAMPLES` (esd/dispatcher/solvers/__init__.py), for which this prints the figures.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.solver import measure
from esd.dispatcher.solvers import Solution, get_solver
from esd.dispatcher.solvers.cuda import to_host
from esd.dispatcher.solvers.cuda.device import open_device
from testbed.cost_families import FAMILIES

_SAMPLES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)  # per worker
_LARGEST = 1 << 20  # entries
_SECONDS = 0.15  # for a case


def main() -> None:
    """Prints the median times of every case as a table in Markdown.

    Raises:
        Unavailable: there is no device.
    """
    device = open_device()
    sys.stdout.write(
        f"{device.name}\n| costs | n | m | copied and on the CPU, ms | on the device, ms |\n|---|---|---|---|---|\n"
    )
    for family in ("esd", "cached", "same", "floats"):
        for workers in (8, 32):
            for samples in _SAMPLES:
                if samples * workers**2 > _LARGEST:
                    continue
                costs = FAMILIES[family](samples * workers, workers, np.random.default_rng(3))
                there, capacities = device.upload(costs), np.full(workers, samples, np.int32)
                copied = _milliseconds(lambda: get_solver("auto").solve(to_host(there), capacities))  # noqa: B023
                solved = _milliseconds(lambda: get_solver("dual-cuda").solve(there, capacities))  # noqa: B023
                sys.stdout.write(f"| {family} | {workers} | {samples} | {copied:.3f} | {solved:.3f} |\n")


def _milliseconds(solve: Callable[[], Solution]) -> float:
    """Returns the median time of a solve, after a first one, which may compile a kernel."""
    solve()
    times, _ = measure(lambda: lambda: solve().cost, _SECONDS, time.perf_counter)
    return 1e3 * statistics.median(times)


if __name__ == "__main__":
    main()
