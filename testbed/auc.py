"""The exact area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def exact_auc(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    """The area by the Mann-Whitney statistic: the sum of the ranks of the positives, where equal scores share a rank.

    `scores` and `labels` are [samples]; a label is 0 or 1, and both occur.
    """
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    mean_rank = last_rank - (counts - 1) / 2
    positives = int(labels.sum())
    rank_sum = mean_rank[inverse][labels == 1].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))
