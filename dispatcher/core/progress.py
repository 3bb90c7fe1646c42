"""Progressive validation: every sample is scored before it is trained, and the scores make loss and AUC.

Both are functions of the stream alone: counts are integers, and losses are summed in the order (iteration,
worker slot), whichever worker reports first.
"""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.typing import NDArray

from services.domain.reports import SCORE_BINS, IterationReport


class ScoreHistogram:
    """The area under the ROC curve of a stream, exact up to the width of a score bin.

    AUC is the share of (positive, negative) pairs in which the positive has the higher score, ties counting
    half (the Mann-Whitney statistic). Two histograms of scores are all it needs.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(2 * SCORE_BINS, np.int64)

    def add(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Counts m samples by their score bins, uint16 [m], and labels, uint8 [m], each 0 or 1."""
        np.add.at(self._counts, labels.astype(np.int64) * SCORE_BINS + bins, 1)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples by score bin, int64 [2 x 65536]: first the negatives, then the positives."""
        return self._counts

    def auc(self) -> float:
        """Returns the area under the ROC curve, 0..1; NaN until both labels were seen."""
        negatives, positives = self._counts.reshape(2, SCORE_BINS)
        pairs = float(negatives.sum()) * float(positives.sum())
        if pairs == 0:
            return math.nan
        lower_negatives = np.cumsum(negatives) - negatives
        # numpy's sum, not a dot product: BLAS may add in another order from run to run
        won = float(np.sum(positives * (lower_negatives + negatives / 2)))
        return won / pairs


class Progress:
    """Loss and AUC over the iterations that all workers have reported."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open: dict[int, dict[int, IterationReport]] = {}  # by iteration and slot
        self._histogram = ScoreHistogram()
        self._loss_sum = 0.0
        self.samples = 0

    def add(self, slot: int, report: IterationReport) -> bool:
        """Takes one worker's report. Returns whether it was the last one of its iteration.

        Each worker reports its iterations in order and once, so iterations complete in order, too.
        """
        reports = self._open.setdefault(report.iteration, {})
        reports[slot] = report
        if len(reports) < self._workers:
            return False
        for _, part in sorted(self._open.pop(report.iteration).items()):
            self._loss_sum += part.loss_sum
            self.samples += len(part.labels)
            self._histogram.add(part.score_bins, part.labels)
        return True

    def save(self) -> bytes:
        """Returns the progress over all complete iterations, for `load`."""
        buffer = io.BytesIO()
        used = np.flatnonzero(self._histogram.counts)
        np.savez(
            buffer,
            bins=used,
            counts=self._histogram.counts[used],
            loss_sum=np.float64(self._loss_sum),
            samples=np.int64(self.samples),
        )
        return buffer.getvalue()

    def load(self, saved: bytes | None, workers: int) -> None:
        """Goes back to what `save` returned, or to the beginning for None; from there on `workers` workers report."""
        self._workers = workers
        self._open.clear()
        self._histogram, self._loss_sum, self.samples = ScoreHistogram(), 0.0, 0
        if saved is not None:
            with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
                self._histogram.counts[arrays["bins"]] = arrays["counts"]
                self._loss_sum = float(arrays["loss_sum"])
                self.samples = int(arrays["samples"])

    @property
    def loss(self) -> float:
        """Mean logistic loss over all samples; NaN before the first."""
        return self._loss_sum / self.samples if self.samples else math.nan

    @property
    def auc(self) -> float:
        """Area under the ROC curve over all samples; NaN until both labels were seen."""
        return self._histogram.auc()
