"""Options of ESD: how HybridDis (ESD §4.3) divides a batch between an exact solver and a heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.options import MechanismOptions


class Criterion(Enum):
    """Which rows of the cost matrix go to the exact solver (ESD §4.3): those with the largest value.

    Example:
        >>> costs = [[1, 9, 5], [1, 2, 5]]
        >>> esd.hybrid_dis(costs, [1, 1, 0], alpha=0.5, criterion=esd.Criterion("row-mean")).assignment.tolist()
        [0, 1]
    """

    MIN2_MIN = "min2-min"
    MIN3_MIN = "min3-min"
    MIN3_MIN2 = "min3-min2"
    ROW_MEAN = "row-mean"


@dataclass(frozen=True, slots=True)
class EsdOptions(MechanismOptions):
    """Options of the mechanisms `esd` and `esd-priced`.

    Attributes:
        alpha: share of the samples that the exact solver assigns, 0..1.
        auto_alpha: whether the time for a decision limits the share further.
        criterion: selects the samples for the exact solver.
        solver: name of the exact solver. All solvers give the same assignment, in different times.
        eviction_term: whether expected costs contain the evict pushes that a row's entry into a full cache may cause.

    Example:
        >>> job = esd.load("model").job
        >>> replace(job, mechanism="esd", mechanism_options=esd.EsdOptions(alpha=0.5)).options.alpha
        0.5
    """

    name: ClassVar[str] = "esd"
    alpha: float = 1.0
    auto_alpha: bool = False
    criterion: Criterion = Criterion.MIN2_MIN
    solver: str = "auto"
    eviction_term: bool = False

    def __post_init__(self) -> None:
        check_choice(self.alpha, self.criterion)


def check_choice(alpha: float, criterion: Criterion) -> None:
    """Raises InvalidArgument unless these can select samples for the exact solver."""
    if not isinstance(alpha, int | float | np.floating) or not 0 <= alpha <= 1:
        raise InvalidArgument(f"alpha is {alpha}, it must be in 0..1")
    if not isinstance(criterion, Criterion):
        raise InvalidArgument(f"criterion is {criterion!r}, it must be one of {', '.join(map(str, Criterion))}")
