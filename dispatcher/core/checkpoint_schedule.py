"""The schedule of checkpoints: it selects the iterations before which they are taken."""

from __future__ import annotations

import math

from esd.services.domain.cuts import Cuts


class CheckpointSchedule:
    """Makes a checkpoint due after a number of iterations, of seconds or of bytes, at the earliest of these moments.

    The flush of a checkpoint changes the content of caches and parameter servers, and so later decisions. Counting
    iterations and bytes of samples keeps runs equal byte for byte. Counting seconds makes the iterations of the
    checkpoints an input of the run.
    """

    def __init__(self, every: int, seconds: float, size: int = 0, *, first: int = 0) -> None:
        """Starts before the first iteration.

        Args:
            every: iterations between two checkpoints; 0: any number.
            seconds: longest time between two checkpoints; 0: any time.
            size: bytes of samples after which a checkpoint is due; 0: any number.
            first: the first iteration of the job, from which `every` counts.
        """
        self._cuts = Cuts(first, every)
        self._seconds = seconds
        self._size = size
        self._bytes = 0  # of samples since the latest
        self._latest = first
        self._latest_time = 0.0

    def start(self, iteration: int, now: float) -> None:
        """Restarts the schedule at a checkpoint or an epoch that begins before this iteration; `now` as in `due`."""
        self._latest = iteration
        self._latest_time = now
        self._bytes = 0

    def add(self, size: int) -> None:
        """Counts the bytes of the samples of the next iteration."""
        self._bytes += size

    def due(self, iteration: int, now: float) -> bool:
        """Returns whether a checkpoint is due before this iteration, at `now`, in seconds of a monotonic clock."""
        if iteration <= self._latest:
            return False
        full = 0 < self._size <= self._bytes
        return full or self._cuts.at(iteration) or self.seconds_left(iteration, now) <= 0

    def seconds_left(self, iteration: int, now: float) -> float:
        """Returns the seconds until a checkpoint before this iteration is due by time; infinite if it never is."""
        if iteration <= self._latest or not self._seconds:
            return math.inf
        return self._latest_time + self._seconds - now
