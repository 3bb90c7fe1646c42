"""The CUDA solvers' sources, and their steps run on the CPU.

The kernels are templates over a team of threads. `sources` holds what the run-time compiler needs; `emulate` runs the
same templates with a team played by one CPU thread: all of the code but the barriers is tested without a device.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

REPORT_WORDS: int
"""Words of a report before the prices: first bad entry of the costs or -1, exponent, gap, passes, phases,
adjustments.

Integers of the solve are costs times 2^exponent. The dual ascent makes passes; the Hungarian algorithm makes phases and
adjusts its matrix.
"""

BLOCK_THREADS: int
"""Threads of a block."""

def sources() -> Mapping[str, str]:
    """Text of every header and of cuda/kernels.cu, by the name it is included by."""

def workspace_bytes(samples: int, workers: int) -> int:
    """Device memory that a solve works in."""

def emulate(
    costs: NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64],
    capacities: NDArray[np.int32],
    start: NDArray[np.float64] | None,
    algorithm: Literal["dual", "hungarian"],
    threads: int,
    seed: int,
    report: NDArray[np.int64],
    assignment: NDArray[np.int32],
    chosen: NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64],
) -> None:
    """Solves as a kernel of `threads` threads would, 1..1024, and writes what a kernel writes.

    Args:
        costs: [k, n].
        capacities: int32 [n], sum k.
        start: [n] prices, or None.
        algorithm: the ascent or the Hungarian algorithm.
        threads: of the emulated block.
        seed: between two barriers the threads take turns in an order drawn from it.
        report: int64 [REPORT_WORDS + n]; after the words come the prices, in units of the integers.
        assignment: int32 [k].
        chosen: [k], costs of the assignment, in their own dtype.
    """
