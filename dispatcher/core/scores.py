"""Histograms of predicted probabilities by label, and the quality figures of a model derived from them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from esd.native.scores import count_scores
from esd.services.domain.reports import SCORE_BINS
from esd.services.domain.state import Quality


class Scores(NamedTuple):
    """The scores of a stream at one moment, exact up to the width of a score bin.

    AUC is the share of (positive, negative) pairs in which the positive has the higher score, ties counting
    half (the Mann-Whitney statistic). It follows from two histograms of scores.

    Attributes:
        bins: the bins used so far, ascending, int64 [c].
        negatives: numbers of samples with label 0 in these bins, int64 [c].
        positives: numbers of samples with label 1 in these bins, int64 [c].
    """

    bins: NDArray[np.int64]
    negatives: NDArray[np.int64]
    positives: NDArray[np.int64]

    def quality(self, loss_sum: float, samples: int, gauc: float = math.nan) -> Quality:
        """Returns the figures of `samples` samples with these scores and the sum of their losses."""
        negative, positive = int(self.negatives.sum()), int(self.positives.sum())
        loss = mean_loss(loss_sum, samples)
        entropy = math.nan
        if negative and positive:
            share = positive / (negative + positive)
            entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        # The sum of the predicted probabilities, each replaced by the middle of its bin.
        predicted = float(np.sum((self.negatives + self.positives) * ((self.bins + 0.5) / SCORE_BINS)))
        return Quality(
            loss=loss,
            auc=self.auc(),
            normalised_entropy=loss / entropy,
            calibration=predicted / positive if positive else math.nan,
            gauc=gauc,
        )

    def auc(self) -> float:
        """Returns the area under the ROC curve, 0..1; NaN until both labels were seen."""
        pairs = float(self.negatives.sum()) * float(self.positives.sum())
        if pairs == 0:
            return math.nan
        lower_negatives = np.cumsum(self.negatives) - self.negatives
        # numpy's sum and not a dot product, because BLAS may add in a different order from run to run
        won = float(np.sum(self.positives * (lower_negatives + self.negatives / 2)))
        return won / pairs


def mean_loss(loss_sum: float, samples: int) -> float:
    """Returns the mean loss; NaN without samples."""
    return loss_sum / samples if samples else math.nan


class ScoreHistogram:
    """Counts the scores of a stream, by label."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * SCORE_BINS, np.int64)
        self._used = np.zeros(SCORE_BINS, np.bool_)  # most bins stay empty, and `scores` skips them

    def add(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Counts m samples by their score bins, uint16 [m], and labels, uint8 [m]. Only labels 0 and 1 count."""
        count_scores(self._counts, self._used, bins, labels, 1)

    def remove(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Removes m samples that were added before from the counts."""
        count_scores(self._counts, self._used, bins, labels, -1)

    def load(self, places: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Sets some entries of `counts`: places and values, int64 [c] each."""
        self._counts[places] = counts
        self._used[places % SCORE_BINS] = True

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples by score bin, int64 [2 x 65536]: first the negatives, then the positives."""
        return self._counts

    def scores(self) -> Scores:
        """Returns a copy of the counts so far, which later samples do not change."""
        used = np.flatnonzero(self._used)
        return Scores(used, self._counts[used], self._counts[SCORE_BINS + used])
