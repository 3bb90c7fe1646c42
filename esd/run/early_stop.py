"""`--early-stop`: when a run ends because it does not get better."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import KEPT_EVALUATIONS, Evaluation, Ranking

RANKING = tuple(each.name for each in fields(Ranking))  # metrics of models of graphs
_SMALLER_IS_BETTER = {"loss": True, "normalised_entropy": True, "auc": False, "gauc": False} | dict.fromkeys(
    RANKING, False
)


@dataclass(slots=True)
class EarlyStop:
    """Ends a run that does not get better.

    Attributes:
        metric: a figure of the held-out samples: auc, gauc, loss or normalised_entropy; of a graph also mrr, hits_at_1,
            hits_at_3 or hits_at_10.
        patience: how many evaluations in a row may bring no better one; the run stops at the last of them.
        best: the best so far, and where.
    """

    metric: str
    patience: int
    best: tuple[float, int] = (math.nan, 0)
    _without: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> EarlyStop:
        """Reads METRIC:PATIENCE. Raises InvalidArgument."""
        metric, _, patience = text.partition(":")
        if metric not in _SMALLER_IS_BETTER or not patience.isdecimal() or not 0 < int(patience) < KEPT_EVALUATIONS:
            raise InvalidArgument(
                f"--early-stop {text!r} is not METRIC:PATIENCE, such as auc:3, the patience from 1 to "
                f"{KEPT_EVALUATIONS - 1}; the metrics are {', '.join(_SMALLER_IS_BETTER)}"
            )
        return cls(metric, int(patience))

    def stops(self, evaluation: Evaluation) -> bool:
        """Counts an evaluation, and returns whether the run must end."""
        figure = figure_of(self.metric, evaluation)
        if is_better(self.metric, figure, self.best[0]):
            self.best, self._without = (figure, evaluation.iteration), 0
        else:
            self._without += 1
        return self._without >= self.patience


def check_metric(metric: str) -> None:
    """Raises InvalidArgument if evaluations have no figure of this name."""
    if metric not in _SMALLER_IS_BETTER:
        raise InvalidArgument(f"{metric!r} is no figure of an evaluation; these are {', '.join(_SMALLER_IS_BETTER)}")


def figure_of(metric: str, evaluation: Evaluation) -> float:
    """Returns the figure of an evaluation that a metric names."""
    figure: float = getattr(evaluation.ranking if metric in RANKING else evaluation.quality, metric)
    return figure


def is_better(metric: str, figure: float, best: float) -> bool:
    """Returns whether a figure is better than the best one so far, NaN before the first one."""
    better = figure < best if _SMALLER_IS_BETTER[metric] else figure > best
    return better or math.isnan(best)
