"""The output of the kernel in memory, and its conversion to a solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.protocol import Prices, Solution
from esd.native import cuda as native

_BAD_ENTRY, _EXPONENT, _GAP, _PASSES, _PHASES, _ADJUSTMENTS = range(native.REPORT_WORDS)


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """The arrays that one solve fills.

    Attributes:
        report: int64 [REPORT_WORDS + n]; esd.native.cuda.REPORT_WORDS documents its words.
        assignment: int32 [k], the worker of each sample.
        chosen_costs: [k], the costs of the assignment, in the dtype of the costs.
    """

    report: NDArray[np.int64]
    assignment: NDArray[np.int32]
    chosen_costs: NDArray[Any]

    @classmethod
    def empty(cls, samples: int, workers: int, dtype: np.dtype[Any]) -> DeviceAnswer:
        """Returns arrays of zeros for k samples, n workers and costs of the given dtype."""
        return cls(
            np.zeros(native.REPORT_WORDS + workers, np.int64), np.zeros(samples, np.int32), np.zeros(samples, dtype)
        )

    @property
    def bad_entry(self) -> int | None:
        """The index of the first cost that is negative, infinite or NaN; None if all costs are valid.

        With an invalid cost the other arrays hold no solution.
        """
        entry = int(self.report[_BAD_ENTRY])
        return None if entry < 0 else entry

    @property
    def passes(self) -> int:
        """The number of passes of the dual ascent over the matrix."""
        return int(self.report[_PASSES])

    @property
    def phases(self) -> int:
        """The number of phases of the Hungarian algorithm; each phase assigns further samples."""
        return int(self.report[_PHASES])

    @property
    def adjustments(self) -> int:
        """The number of times that the Hungarian algorithm adjusted its matrix."""
        return int(self.report[_ADJUSTMENTS])

    def solution(self) -> Solution:
        """Returns the solution in the units of the costs, like the CPU solvers."""
        solver = "hungarian-cuda" if self.phases > 0 or self.passes == 0 else "dual-cuda"
        exponent = int(self.report[_EXPONENT])
        prices: Prices = self.report[native.REPORT_WORDS :].copy()
        cost: int | float
        if self.chosen_costs.dtype == np.int32:
            cost = int(self.chosen_costs.sum(dtype=np.int64))
        else:
            prices = np.ldexp(prices.astype(np.float64), -exponent)
            cost = float(np.cumsum(self.chosen_costs, dtype=np.float64)[-1])  # added up in order, as on the CPU
        gap = float(np.ldexp(float(self.report[_GAP]), -exponent))
        return Solution(self.assignment.copy(), cost, prices, gap, solver)
