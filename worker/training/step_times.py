"""The times of a step: which part of it took how long, and when."""

from __future__ import annotations

from typing import NamedTuple


class StepTimes(NamedTuple):
    """The ends of a step's parts, in their order, in seconds of time.perf_counter.

    Attributes:
        began: the step began, with the state of the dense parameters.
        computed: the forward and backward pass was over.
        trained_rows: the optimizers of the worker's own rows were.
        summed: the sums over all workers were, waiting for other workers included.
        optimised: the optimizers of all that the workers share were.
        ended: averages over the workers were, which few ways to sum take.
    """

    began: float = 0.0
    computed: float = 0.0
    trained_rows: float = 0.0
    summed: float = 0.0
    optimised: float = 0.0
    ended: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds of the forward and backward pass."""
        return self.computed - self.began

    @property
    def all_reduce(self) -> float:
        """Seconds in the sums over all workers, waiting for other workers included."""
        return self.summed - self.trained_rows + self.ended - self.optimised

    @property
    def update(self) -> float:
        """Seconds in the optimizers."""
        return self.trained_rows - self.computed + self.optimised - self.summed
