"""Replay: assignments that were decided elsewhere, for recorded runs and hand-worked traces."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.protocol import Choice, Turn
from services.domain.errors import InvalidArgument


class Replay:
    """Follows a table of assignments, whatever the workloads."""

    lookahead = 0

    def __init__(self, assignments: NDArray[np.int32], workers: int) -> None:
        """Takes the table over.

        Args:
            assignments: int32 [iterations, k]; a shorter batch uses the first columns of its row.
            workers: n.

        Raises:
            InvalidArgument: the table has another rank, or names a worker outside 0..n-1.
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

    def decide(self, turn: Turn, /) -> Choice:
        """The row of this iteration. Raises InvalidArgument when the table has none, or one that is too short."""
        samples, iteration = len(turn.ids), turn.iteration
        iterations, columns = self._assignments.shape
        if iteration >= iterations or samples > columns:
            raise InvalidArgument(
                f"iteration {iteration} has {samples} samples, the assignments cover {iterations} x {columns}"
            )
        return Choice(self._assignments[iteration, :samples])
