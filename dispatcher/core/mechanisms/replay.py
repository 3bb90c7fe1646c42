"""Replay: assignments from a table, for recorded runs and hand-worked traces."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.services.domain.errors import InvalidArgument


class Replay:
    """Follows a table of assignments, and ignores the workloads."""

    lookahead = 0

    def __init__(self, assignments: NDArray[np.int32], workers: int) -> None:
        """Keeps the table.

        Args:
            assignments: int32 [iterations, k]; a shorter batch uses the first columns of its row.
            workers: n.

        Raises:
            InvalidArgument: the table does not have two dimensions, or contains a worker outside 0..n-1.
        """
        if assignments.ndim != 2:
            raise InvalidArgument(f"assignments have shape {assignments.shape}, they must be [iterations, k]")
        wrong = np.argwhere((assignments < 0) | (assignments >= workers))
        if len(wrong):
            t, i = wrong[0]
            raise InvalidArgument(
                f"assignment of sample {i} in iteration {t} is {assignments[t, i]}, workers are 0..{workers - 1}"
            )
        self._assignments = np.ascontiguousarray(assignments, np.int32)

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Returns the table's row of this iteration. Raises InvalidArgument if it is missing or too short."""
        samples, iteration = len(problem.batch), problem.iteration
        iterations, columns = self._assignments.shape
        if iteration >= iterations or samples > columns:
            raise InvalidArgument(
                f"iteration {iteration} has {samples} samples, the assignments cover {iterations} x {columns}"
            )
        return Assignment(self._assignments[iteration, :samples])
