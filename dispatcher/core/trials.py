"""Trials of workers that balanced workloads leave without samples, so that their links are measured again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays

_ITERATIONS = 2  # of a trial: a worker that rested gets the newest parameters in the first, which measures no sum
_PAUSE = 32  # shortest time between two trials, relative to the time of one: trials take at most 3% of the time


class Trials:
    """Chooses the iterations in which a worker that would get no samples gets one.

    Nothing is measured on a link without samples, so a worker whose link was slow for a while would stay without them
    for ever. It is tried now and then: the slower its link was when it was last measured, the less often.

    Args:
        workers: n.
        return_sums: the bytes of a return from a rest, in dense sums; as many sums follow before the worker rests
            again. 0 where no worker rests.
    """

    def __init__(self, workers: int, return_sums: int) -> None:
        self._sums = _ITERATIONS + 2 * return_sums if return_sums else 0  # where nobody rests, trials add no sums
        self._without = np.zeros(workers)  # seconds of training since the worker had samples
        self._left = np.zeros(workers, np.int64)  # iterations of the present trial

    def samples(self, sample_seconds: NDArray[np.float64], summing: NDArray[np.float64]) -> NDArray[np.int32]:
        """Begins the trials that are due, and returns the samples that each worker needs, int32 [n]: 1 on trial, or 0.

        Args:
            sample_seconds: expected time of one sample on each worker, float64 [n].
            summing: expected time of the dense sums of an iteration on each link, float64 [n].
        """
        cost = _ITERATIONS * sample_seconds + self._sums * summing
        self._left[self._without > _PAUSE * cost] = _ITERATIONS
        self._without[self._left > 0] = 0
        return (self._left > 0).astype(np.int32)

    def plan(self, workloads: NDArray[np.int32]) -> None:
        """Records the samples of a planned iteration, int32 [n]."""
        self._left = np.maximum(self._left - (workloads > 0), 0)
        self._without[workloads > 0] = 0

    def observe(self, seconds: float) -> None:
        """Records the time of an iteration."""
        self._without += seconds

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state on which trials depend, for `load`."""
        return {"without": self._without, "left": self._left}

    def load(self, saved: Arrays) -> None:
        """Restores the result of `save`; of an earlier version, which had no trials, it is empty."""
        if saved:
            self._without, self._left = saved["without"], saved["left"]
