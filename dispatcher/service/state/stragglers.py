"""Who holds up an iteration that takes much longer than the others: reported, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from dispatcher.service.state.workers import Member
from services.domain.reports import WorkerPhase

_RECENT = 101  # iterations whose median is the measure
_FEWEST = 5  # before that many, nobody knows what is usual
_SHORTEST_SECONDS = 1.0  # what takes less is no straggling, however quick the other iterations are


class Stragglers:
    """The deadline of the oldest iteration that not all workers have confirmed.

    Args:
        factor: times the median iteration.

    Attributes:
        iteration: that is the oldest.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._durations: deque[float] = deque(maxlen=_RECENT)
        self._since: float | None = None  # it could begin; None: it is not planned
        self.iteration = 0

    @property
    def deadline(self) -> float | None:
        """Seconds that an iteration may take; None while too few were seen."""
        if len(self._durations) < _FEWEST:
            return None
        return max(_SHORTEST_SECONDS, self._factor * median(self._durations))

    def begin(self, iteration: int) -> None:
        """An epoch begins at this iteration; the measure stays."""
        self.iteration = iteration
        self._since = None

    def planned(self, iteration: int, now: float) -> None:
        """An iteration is published."""
        if iteration == self.iteration:
            self._since = now

    def confirmed(self, iterations: int, planned: int, now: float) -> None:
        """All workers have confirmed so many iterations, of those planned."""
        if self._since is not None:
            self._durations.append(now - self._since)
        self.iteration = iterations
        self._since = now if planned > iterations else None

    def late(self, workers: Iterable[Member], now: float) -> list[Member]:
        """The workers that the oldest iteration waits for, once it is over its deadline."""
        deadline = self.deadline
        if deadline is None or self._since is None or now - self._since <= deadline:
            return []
        unconfirmed = [member for member in workers if member.confirmed <= self.iteration]
        busy = [member for member in unconfirmed if member.phase in (WorkerPhase.PUSH, WorkerPhase.COMPUTE)]
        # A pull may wait for what somebody who is busy has yet to push.
        return busy or [member for member in unconfirmed if member.phase is WorkerPhase.PULL]
