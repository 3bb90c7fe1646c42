"""The schedule of checkpoints: it selects the iterations before which they are taken."""

from __future__ import annotations

import math

from esd.services.domain.cuts import Cuts


class CheckpointSchedule:
    """Makes a checkpoint due after a number of iterations or of seconds, at the earlier of the two moments.

    The flush of a checkpoint changes the content of caches and parameter servers, and so later decisions. Counting
    iterations keeps runs equal byte for byte. Counting seconds makes the iterations of the checkpoints an input of the
    run.
    """

    def __init__(self, every: int, seconds: float, *, first: int = 0) -> None:
        """Starts before the first iteration.

        Args:
            every: iterations between two checkpoints; 0 leaves the decision to `seconds`.
            seconds: longest time between two checkpoints; 0 leaves the decision to `every`.
            first: the first iteration of the job, from which `every` counts.
        """
        self._cuts = Cuts(first, every)
        self._seconds = seconds
        self._latest = first
        self._latest_time = 0.0

    def start(self, iteration: int, now: float) -> None:
        """Restarts the schedule at a checkpoint or an epoch that begins before this iteration; `now` as in `due`."""
        self._latest = iteration
        self._latest_time = now

    def due(self, iteration: int, now: float) -> bool:
        """Returns whether a checkpoint is due before this iteration, at `now`, in seconds of a monotonic clock."""
        if iteration <= self._latest:
            return False
        return self._cuts.at(iteration) or self.seconds_left(iteration, now) <= 0

    def seconds_left(self, iteration: int, now: float) -> float:
        """Returns the seconds until a checkpoint before this iteration is due by time; infinite if it never is."""
        if iteration <= self._latest or not self._seconds:
            return math.inf
        return self._latest_time + self._seconds - now
