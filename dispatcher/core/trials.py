"""Trials of workers that balanced workloads leave without samples, so that their links are measured again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays

_ITERATIONS = 2  # of a trial: a worker that rested gets the newest parameters in the first, which measures no sum
_PAUSES = 8.0, 32.0  # before the first trial, and the longest, relative to a trial's time: trials take 3% of it at most


class Trials:
    """Decides when a worker that was left without samples gets some again.

    Nothing is measured on a link without samples, so a worker whose link was slow for a while would stay without them
    for ever. It is tried now and then: it gets a sample in two iterations. The slower its link was when it was last
    measured the longer is the pause before, and each pause of a worker is twice as long as the last, up to a limit.

    A worker that rests comes back in no other way. Its return costs its link several sums, so one whose sums take
    about as long as an iteration would be slower if it came back whenever it seems to be worth it. It rests again
    behind a trial until the measurements are in, and may then have samples as all others.

    Args:
        workers: n.
        return_sums: the bytes of a return from a rest, in dense sums; as many sums follow before the worker rests
            again. 0 where no worker rests.
    """

    def __init__(self, workers: int, return_sums: int) -> None:
        self._sums = _ITERATIONS + 2 * return_sums if return_sums else 0  # where nobody rests, trials add no sums
        self._idle = np.zeros(workers, np.bool_)  # without samples in the newest iteration
        self._without = np.zeros(workers)  # seconds of training since they had some
        self._pauses = np.full(workers, _PAUSES[0])
        self._left = np.zeros(workers, np.int64)  # iterations of the present trial
        self._rests = np.zeros(workers, np.bool_)  # since its last trial was measured
        self._unmeasured = np.zeros(workers, np.int64)  # iterations whose times are to come, up to the trial's last
        self._planned = 0  # iterations whose times are to come

    @property
    def tried(self) -> NDArray[np.bool_]:
        """The workers that need a sample in the next iteration, [n]."""
        return self._left > 0

    @property
    def out(self) -> NDArray[np.bool_]:
        """The workers that get no samples in the next iteration, [n]."""
        return self._rests & ~self.tried

    def begin(self, sample_seconds: NDArray[np.float64], summing: NDArray[np.float64]) -> None:
        """Begins the trials that are due.

        Args:
            sample_seconds: expected time of one sample on each worker, float64 [n].
            summing: expected time of the dense sums of an iteration on each link, float64 [n].
        """
        cost = _ITERATIONS * sample_seconds + self._sums * summing
        due = ~self.tried & (self._without > self._pauses * cost)
        self._left[due] = _ITERATIONS
        self._pauses[due] = np.minimum(2 * self._pauses[due], _PAUSES[1])

    def plan(self, workloads: NDArray[np.int32], rests: NDArray[np.bool_]) -> None:
        """Records a planned iteration: its samples, int32 [n], and the workers that rest in it, [n]."""
        self._planned += 1
        works = workloads > 0
        self._unmeasured[works & (self._left == 1)] = self._planned
        self._left[works & self.tried] -= 1
        self._without[works] = 0
        self._idle = ~works
        self._rests |= rests

    def observe(self, seconds: float) -> None:
        """Records the time of the earliest iteration whose times are to come."""
        self._planned = max(self._planned - 1, 0)
        self._rests &= self._unmeasured != 1
        self._unmeasured = np.maximum(self._unmeasured - 1, 0)
        self._without[self._idle] += seconds

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state on which trials depend, for `load`."""
        return {
            "idle": self._idle,
            "without": self._without,
            "pauses": self._pauses,
            "left": self._left,
            "rests": self._rests,
            "unmeasured": self._unmeasured,
            "planned": np.array(self._planned),
        }

    def load(self, saved: Arrays) -> None:
        """Restores the result of `save`; of an earlier version, which had no trials, it is empty."""
        if saved:
            self._idle, self._without, self._rests = saved["idle"], saved["without"], saved["rests"]
            self._pauses, self._left, self._unmeasured = saved["pauses"], saved["left"], saved["unmeasured"]
            self._planned = int(saved["planned"])
