"""Decides before which iterations checkpoints are taken."""

from __future__ import annotations

import math


class CheckpointSchedule:
    """A checkpoint is due after a number of iterations or of seconds, whichever is over first.

    The flush of a checkpoint changes what caches and parameter server hold, and so later decisions. Counted iterations
    keep runs equal byte for byte; with seconds, the iterations before which checkpoints were taken are part of a run's
    input.
    """

    def __init__(self, every: int, seconds: float) -> None:
        """Starts before iteration 0.

        Args:
            every: iterations between two checkpoints; 0: `seconds` alone decides.
            seconds: longest time between two checkpoints; 0: `every` alone decides.
        """
        self._every = every
        self._seconds = seconds
        self._latest = 0
        self._latest_time = 0.0

    def start(self, iteration: int, now: float) -> None:
        """Notes that a checkpoint is taken, or an epoch begins, before this iteration; `now` as in `due`."""
        self._latest = iteration
        self._latest_time = now

    def due(self, iteration: int, now: float) -> bool:
        """Tells whether a checkpoint is due before this iteration, at `now`, in seconds of a clock that only rises."""
        if iteration <= self._latest:
            return False
        in_time = self._every > 0 and iteration % self._every == 0
        return in_time or self.seconds_left(iteration, now) <= 0

    def seconds_left(self, iteration: int, now: float) -> float:
        """Returns how long it takes for a checkpoint before this iteration to be due by time; infinite if never."""
        if iteration <= self._latest or not self._seconds:
            return math.inf
        return self._latest_time + self._seconds - now
