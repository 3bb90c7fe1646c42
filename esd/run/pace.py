"""The speed of a run, and the time that it still needs, from the iterations that its job has confirmed."""

from __future__ import annotations

import math
from collections import deque

WINDOW_SECONDS = 10.0  # the latest seconds, over which speed is measured


class Pace:
    """Measures the speed of one run.

    Args:
        first_iteration: the first iteration of the run.
        iterations: the number of iterations that it trains; None if its data do not tell.

    Attributes:
        done: the number of iterations that it has trained.
    """

    def __init__(self, first_iteration: int, iterations: int | None) -> None:
        self.done = 0
        self._first = first_iteration
        self._iterations = iterations
        self._seen: deque[tuple[float, int]] = deque()  # (time, iterations done), over the window

    def seen(self, confirmed: int, now: float) -> None:
        """Adds the number of iterations of the whole training that are confirmed at `now`, in monotonic seconds."""
        done = max(0, confirmed - self._first)
        if done < self.done:
            self._seen.clear()  # the run has returned to a checkpoint
        self.done = done
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def iterations_per_second(self) -> float:
        """The speed over the window; NaN before two moments are known."""
        (since, before), (now, done) = (self._seen[0], self._seen[-1]) if self._seen else ((0.0, 0), (0.0, 0))
        return (done - before) / (now - since) if now > since else math.nan

    @property
    def seconds_left(self) -> float:
        """The time of the remaining iterations at this speed; NaN if their number or the speed is unknown or 0."""
        speed = self.iterations_per_second
        return (self._iterations - self.done) / speed if self._iterations is not None and speed > 0 else math.nan

    def __str__(self) -> str:
        """Returns the pace in words: `120 of 704 iterations, 11.8 per second, 0:00:50 left`."""
        of_all = "" if self._iterations is None else f" of {self._iterations:,}"
        speed, left = self.iterations_per_second, self.seconds_left
        words = [f"{self.done:,}{of_all} iterations"]
        if not math.isnan(speed):
            words.append(f"{speed:.3g} per second")
        if not math.isnan(left):
            minutes, seconds = divmod(math.ceil(left), 60)
            words.append(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} left")
        return ", ".join(words)
