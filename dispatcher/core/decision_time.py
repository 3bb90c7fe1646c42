"""The time that one decision may take, and what it was used for: a replay repeats that and looks at no clock."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

_SMOOTHING = 0.2  # weight of the newest measurement


class DecisionTime:
    """The clock of one decision.

    Whatever depends on it is noted as an effort, a whole number: how many tables were scored, how many rounds were
    searched. A decision that is made again takes the recorded efforts, in the same order, in place of the clock.

    Attributes:
        efforts: what was noted so far; nothing where there is no deadline.
    """

    def __init__(self, deadline: float = math.inf, efforts: Sequence[int] | None = None) -> None:
        """Starts the clock.

        Args:
            deadline: `time.perf_counter()` by which the decision is wanted.
            efforts: what was noted when the decision was made first; the deadline then counts for nothing.
        """
        self._deadline = deadline if efforts is None else math.inf
        self._recorded = deque(efforts or ())
        self.efforts: list[int] = []

    @property
    def seconds_left(self) -> float:
        """Time to the deadline; infinite without one, negative after it."""
        return self._deadline - time.perf_counter()

    def recorded(self) -> int | None:
        """Returns the next recorded effort; None if the clock decides."""
        return self._recorded.popleft() if self._recorded else None

    def note(self, effort: int) -> None:
        """Notes an effort that the clock has decided."""
        if math.isfinite(self._deadline):
            self.efforts.append(effort)

    def over(self) -> bool:
        """Tells whether the deadline has passed; asking is an effort, too."""
        recorded = self.recorded()
        if recorded is not None:
            return bool(recorded)
        over = self.seconds_left <= 0
        self.note(int(over))
        return over


class AffordableSteps:
    """How many equal steps a decision has time for, beside what it takes without them (Herald §4.3)."""

    def __init__(self) -> None:
        """Starts without knowledge: all steps are affordable."""
        self._unit_seconds = 0.0  # of a step's units
        self._other_seconds = 0.0  # per decision

    def choose(self, clock: DecisionTime, steps: int, units: float, least: int = 0) -> int:
        """Returns how many of `steps`, of `units` each, fit into the time that is left, `least` at least."""
        recorded = clock.recorded()
        if recorded is not None:
            return recorded
        left, step = clock.seconds_left - self._other_seconds, self._unit_seconds * units
        chosen = steps if step == 0 or left >= step * steps else max(least, int(left / step))
        clock.note(chosen)
        return chosen

    def learn(self, seconds: float, units: float, other_seconds: float) -> None:
        """Takes in what the steps of a decision took, of how many units they were, and what the rest of it took."""
        weight = _SMOOTHING if self._unit_seconds else 1.0
        if units:
            self._unit_seconds += weight * (seconds / units - self._unit_seconds)
        self._other_seconds += weight * (other_seconds - self._other_seconds)


class NecessaryTime:
    """The budget of a decision that is to be hidden behind training (Herald §4.2).

    It is the necessary time of an iteration, everything but the transfer of rows, less what else planning an iteration
    takes. Both are means of what was measured. Until there is a measurement it is infinite.
    """

    def __init__(self) -> None:
        self._necessary = self._planning = math.nan

    def observe(self, necessary_seconds: float) -> None:
        """Takes in what an iteration took at the workers without its transfers; 0: nobody has measured it."""
        if necessary_seconds > 0:
            self._necessary = _mean(self._necessary, necessary_seconds)

    def learn(self, planning_seconds: float) -> None:
        """Takes in what planning an iteration took besides the decision."""
        self._planning = _mean(self._planning, planning_seconds)

    @property
    def seconds(self) -> float:
        """The budget; not negative."""
        known = not math.isnan(self._necessary + self._planning)
        return max(0.0, self._necessary - self._planning) if known else math.inf


def _mean(mean: float, newest: float) -> float:
    return newest if math.isnan(mean) else mean + _SMOOTHING * (newest - mean)
