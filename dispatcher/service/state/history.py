"""The course of a job in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST = 600  # points: about as many as a wide screen can show apart


@dataclass(frozen=True, slots=True)
class Point:
    """A job's totals when `iterations` were confirmed; what happened between two points is their difference.

    Attributes:
        iterations: confirmed by all workers.
        seconds: since the first plan.
        samples: of the confirmed iterations.
        loss: mean progressive logistic loss over them.
        auc: progressive area under the ROC curve over them; NaN until both labels were seen.
        planned: iterations, confirmed or not.
        decision_seconds: sum over the planned iterations.
        cost_seconds: sum of T_j over their operations.
        lookups: (row, worker) pairs that they need.
        hits: of these, latest version in the cache.
    """

    iterations: int
    seconds: float
    samples: int
    loss: float
    auc: float
    planned: int
    decision_seconds: float
    cost_seconds: float
    lookups: int
    hits: int


class History:
    """Evenly spaced points of a job of any length.

    Keeps one of `step` iterations; when there are too many points, every other one goes and the step doubles. As points
    are totals, the averages between those that stay are still exact.

    Args:
        longest: most points that are kept.
    """

    def __init__(self, longest: int = _LONGEST) -> None:
        self._longest = longest
        self._step = 1
        self.points: list[Point] = []

    def wants(self, iterations: int) -> bool:
        """Whether a point at so many confirmed iterations would be kept."""
        return iterations % self._step == 0

    def add(self, point: Point) -> None:
        """Takes a wanted point; points come in order."""
        self.points.append(point)
        if len(self.points) > self._longest:
            self._step *= 2
            self.points = [kept for kept in self.points if self.wants(kept.iterations)]
