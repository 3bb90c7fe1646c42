"""The schedule of checkpoints: it selects the iterations before which they are taken."""

from __future__ import annotations

import math


class CheckpointSchedule:
    """Makes a checkpoint due after a number of iterations or of seconds, at the earlier of the two moments.

    The flush of a checkpoint changes the content of caches and parameter servers, and so later decisions. Counting
    iterations keeps runs equal byte for byte. Counting seconds makes the iterations of the checkpoints an input of the
    run.
    """

    def __init__(self, every: int, seconds: float) -> None:
        """Starts before iteration 0.

        Args:
            every: iterations between two checkpoints; 0 leaves the decision to `seconds`.
            seconds: longest time between two checkpoints; 0 leaves the decision to `every`.
        """
        self._every = every
        self._seconds = seconds
        self._latest = 0
        self._latest_time = 0.0

    def start(self, iteration: int, now: float) -> None:
        """Restarts the schedule at a checkpoint or an epoch that begins before this iteration; `now` as in `due`."""
        self._latest = iteration
        self._latest_time = now

    def due(self, iteration: int, now: float) -> bool:
        """Returns whether a checkpoint is due before this iteration, at `now`, in seconds of a monotonic clock."""
        if iteration <= self._latest:
            return False
        in_time = self._every > 0 and iteration % self._every == 0
        return in_time or self.seconds_left(iteration, now) <= 0

    def seconds_left(self, iteration: int, now: float) -> float:
        """Returns the seconds until a checkpoint before this iteration is due by time; infinite if it never is."""
        if iteration <= self._latest or not self._seconds:
            return math.inf
        return self._latest_time + self._seconds - now
