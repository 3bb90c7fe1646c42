"""The time limit of a decision, and the record of the work done within it, which a replay repeats without a clock."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence

_SMOOTHING = 0.2  # weight of the newest measurement


class DecisionTime:
    """The clock of one decision.

    A choice that depends on the clock is recorded as an effort, a whole number such as the number of scored tables or
    of search rounds. A replay of the decision uses the recorded efforts, in the same order, instead of the clock.

    Attributes:
        efforts: the efforts recorded so far; empty if there is no deadline.
    """

    def __init__(self, deadline: float = math.inf, efforts: Sequence[int] | None = None) -> None:
        """Starts the clock.

        Args:
            deadline: the value of `time.perf_counter()` at which the decision is due.
            efforts: the efforts of the original decision, for a replay, which ignores the deadline; None otherwise.
        """
        self._deadline = deadline if efforts is None else math.inf
        self._recorded = deque(efforts or ())
        self.efforts: list[int] = []

    @property
    def seconds_left(self) -> float:
        """Time to the deadline; infinite without one, negative after it."""
        return self._deadline - time.perf_counter()

    def part(self, share: float) -> DecisionTime:
        """Returns the clock of a part of the decision, with this share of the time left. Its efforts are noted here."""
        part = DecisionTime()
        if math.isfinite(self._deadline):
            part._deadline = time.perf_counter() + share * self.seconds_left
        part._recorded, part.efforts = self._recorded, self.efforts
        return part

    def recorded(self) -> int | None:
        """Returns the next recorded effort; None if the clock decides."""
        return self._recorded.popleft() if self._recorded else None

    def note(self, effort: int) -> None:
        """Records an effort that followed from the clock."""
        if math.isfinite(self._deadline):
            self.efforts.append(effort)

    def over(self) -> bool:
        """Returns whether the deadline has passed. The answer is recorded as an effort."""
        recorded = self.recorded()
        if recorded is not None:
            return bool(recorded)
        over = self.seconds_left <= 0
        self.note(int(over))
        return over


class AffordableSteps:
    """Estimates the number of equal steps that fit into the time of a decision, after its other work (Herald §4.3)."""

    def __init__(self) -> None:
        """Starts without measurements: all steps are affordable."""
        self._unit_seconds = 0.0  # seconds of one unit of a step
        self._other_seconds = 0.0  # seconds of a decision without its steps

    def choose(self, clock: DecisionTime, steps: int, units: float, least: int = 0) -> int:
        """Returns the number of steps of `units` units that fit into the time left, from `least` to `steps`."""
        recorded = clock.recorded()
        if recorded is not None:
            return recorded
        left, step = clock.seconds_left - self._other_seconds, self._unit_seconds * units
        chosen = steps if step == 0 or left >= step * steps else max(least, int(left / step))
        clock.note(chosen)
        return chosen

    def learn(self, seconds: float, units: float, other_seconds: float) -> None:
        """Learns from a decision.

        Args:
            seconds: time of its steps.
            units: units of all its steps together.
            other_seconds: time of the rest of the decision.
        """
        weight = _SMOOTHING if self._unit_seconds else 1.0
        if units:
            self._unit_seconds += weight * (seconds / units - self._unit_seconds)
        self._other_seconds += weight * (other_seconds - self._other_seconds)


class NecessaryTime:
    """The time budget with which decisions overlap with training and do not delay it (Herald §4.2).

    The budget is the necessary time of an iteration (everything but the transfer of rows) minus the time of planning an
    iteration without its decision. Both are smoothed means of measurements. Before the first measurement the budget is
    infinite.
    """

    def __init__(self) -> None:
        self._necessary = self._planning = math.nan

    def observe(self, necessary_seconds: float) -> None:
        """Records the workers' time for an iteration without its transfers, in seconds; 0 if it was not measured."""
        if necessary_seconds > 0:
            self._necessary = _mean(self._necessary, necessary_seconds)

    def learn(self, planning_seconds: float) -> None:
        """Records the planning time of an iteration, without the decision, in seconds."""
        self._planning = _mean(self._planning, planning_seconds)

    @property
    def seconds(self) -> float:
        """The budget in seconds, at least 0."""
        known = not math.isnan(self._necessary + self._planning)
        return max(0.0, self._necessary - self._planning) if known else math.inf


def _mean(mean: float, newest: float) -> float:
    return newest if math.isnan(mean) else mean + _SMOOTHING * (newest - mean)
