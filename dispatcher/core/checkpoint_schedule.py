"""Before which iterations checkpoints are taken."""

from __future__ import annotations


class CheckpointSchedule:
    """Every so many iterations or so many seconds, whichever comes first.

    The flush of a checkpoint changes what caches and parameter server hold, and so later decisions. Counted iterations
    keep runs equal byte for byte; with seconds, the places where checkpoints were taken are part of a run's input.

    Args:
        every: iterations; 0: as many as there are in `seconds`.
        seconds: longest time between two checkpoints; 0: any.
    """

    def __init__(self, every: int, seconds: float) -> None:
        self._every = every
        self._seconds = seconds
        self._latest = 0
        self._latest_time = 0.0

    def start(self, iteration: int, now: float) -> None:
        """A checkpoint, or the beginning of an epoch, is before this iteration, now."""
        self._latest = iteration
        self._latest_time = now

    def due(self, iteration: int, now: float) -> bool:
        """Whether one is to be taken before this iteration; `now` in seconds, of the clock of `start`."""
        if iteration <= self._latest:
            return False
        in_time = self._every > 0 and iteration % self._every == 0
        return in_time or (self._seconds > 0 and now - self._latest_time >= self._seconds)
