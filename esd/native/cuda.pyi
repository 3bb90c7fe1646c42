"""The sources of the CUDA kernel, and its steps run on the CPU.

The kernel is a template over a team of threads. `sources` returns the input of the run-time compiler. `emulate` runs
the same template with a team of one CPU thread, so that all of the code except the barriers is tested without a device.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

REPORT_WORDS: int
"""The number of words of a report before the prices. They are the index of the first bad cost or -1, the exponent, the
gap, and the passes, phases and adjustments that the solve took.

The integers of the solve are the costs times 2^exponent, and the gap is in their units. The dual ascent makes passes;
the Hungarian algorithm makes phases and adjusts its matrix.
"""

BLOCK_THREADS: int
"""The number of threads of a block."""

def sources() -> Mapping[str, str]:
    """Returns the text of cuda/kernel.cu and of every header that it needs, by the name in its #include."""

def workspace_bytes(samples: int, workers: int) -> int:
    """Returns the bytes of device memory for a solve of k samples and n workers."""

def emulate(
    costs: NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64],
    capacities: NDArray[np.int32],
    start: NDArray[np.float64] | None,
    algorithm: Literal["dual", "hungarian"],
    threads: int,
    seed: int,
    report: NDArray[np.int64],
    assignment: NDArray[np.int32],
    chosen_costs: NDArray[np.int32] | NDArray[np.float32] | NDArray[np.float64],
) -> None:
    """Solves as a block of `threads` threads would, and writes the results of the kernel.

    The costs and capacities must have passed esd.native.solver.check.

    Args:
        costs: [k, n].
        capacities: int32 [n], sum k.
        start: float64 [n], the prices to start from, or None.
        algorithm: the dual ascent or the Hungarian algorithm.
        threads: the threads of the emulated block, 1..BLOCK_THREADS.
        seed: seed of the order in which the threads take turns between two barriers.
        report: int64 [REPORT_WORDS + n], written; after the words come the prices, in units of the integers.
        assignment: int32 [k], written: the worker of each sample.
        chosen_costs: [k], written: the costs of the assignment, in the dtype of the costs.

    Raises:
        ValueError: `threads` is out of range, the costs have another dtype, or an output does not fit.
    """
