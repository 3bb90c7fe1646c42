"""Progressive validation: every sample is scored before it is trained, and the scores tell how good the model is.

Figures are by label; those of a job with several are the first label's, with the loss that is trained. All are
functions of the stream alone: counts are integers, and losses are summed in the order (iteration, worker slot),
whichever worker reports first. Each is given over all samples, and over the latest ones.
"""

from __future__ import annotations

import io
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.grouped_auc import WindowedGauc, mean_gauc
from services.domain.reports import OTHER_LABEL, SCORE_BINS, IterationReport
from services.domain.state import Quality

RECENT_SAMPLES = 1 << 15  # the latest iterations that hold this many samples are the recent ones
_NO_GROUPS = np.empty(0, np.uint64)


class ScoreHistogram:
    """What the scores of a stream say of a model, exact up to the width of a score bin.

    AUC is the share of (positive, negative) pairs in which the positive has the higher score, ties counting
    half (the Mann-Whitney statistic). Two histograms of scores are all it needs.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(2 * SCORE_BINS, np.int64)
        self._used = np.zeros(SCORE_BINS, np.bool_)  # most bins stay empty, and figures need not look at these

    def add(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Counts m samples by their score bins, uint16 [m], and labels, uint8 [m]. Only labels 0 and 1 count."""
        self._change(bins, labels, 1)

    def remove(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Counts m samples no longer that were added before."""
        self._change(bins, labels, -1)

    def _change(self, bins: NDArray[np.uint16], labels: NDArray[np.uint8], by: int) -> None:
        if labels.size and labels.max() >= OTHER_LABEL:
            bins, labels = bins[labels < OTHER_LABEL], labels[labels < OTHER_LABEL]
        np.add.at(self._counts, labels.astype(np.int64) * SCORE_BINS + bins, by)
        self._used[bins] = True

    def load(self, places: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Sets some of `counts`, by their places there, int64 [c] both."""
        self._counts[places] = counts
        self._used[places % SCORE_BINS] = True

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples by score bin, int64 [2 x 65536]: first the negatives, then the positives."""
        return self._counts

    def quality(self, loss_sum: float, samples: int, gauc: float = math.nan) -> Quality:
        """Returns the figures of `samples` samples, whose losses have this sum and whose scores were counted."""
        bins, negatives, positives = self._occupied()
        negative, positive = int(negatives.sum()), int(positives.sum())
        loss = loss_sum / samples if samples else math.nan
        entropy = math.nan
        if negative and positive:
            share = positive / (negative + positive)
            entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
        # The sum of the predicted probabilities, each taken for the middle of its bin.
        predicted = float(np.sum((negatives + positives) * ((bins + 0.5) / SCORE_BINS)))
        return Quality(
            loss=loss,
            auc=_auc(negatives, positives),
            normalised_entropy=loss / entropy,
            calibration=predicted / positive if positive else math.nan,
            gauc=gauc,
        )

    def auc(self) -> float:
        """Returns the area under the ROC curve, 0..1; NaN until both labels were seen."""
        _, negatives, positives = self._occupied()
        return _auc(negatives, positives)

    def _occupied(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Returns the bins that were ever used, int64 [c], and how many negatives and positives are in them."""
        used = np.flatnonzero(self._used)
        return used, self._counts[used], self._counts[SCORE_BINS + used]


def _auc(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> float:
    """The area under the ROC curve of scores in ascending bins, int64 [c] both."""
    pairs = float(negatives.sum()) * float(positives.sum())
    if pairs == 0:
        return math.nan
    lower_negatives = np.cumsum(negatives) - negatives
    # numpy's sum, not a dot product: BLAS may add in another order from run to run
    won = float(np.sum(positives * (lower_negatives + negatives / 2)))
    return won / pairs


class _Iteration(NamedTuple):
    """The scores of one iteration.

    Attributes:
        bins: uint16 [m, L].
        labels: uint8 [m, L].
        loss_sums: float64 [1 + L]: of what is trained, and of each label.
        groups: uint64 [m], or [0] if the samples have none.
    """

    bins: NDArray[np.uint16]
    labels: NDArray[np.uint8]
    loss_sums: NDArray[np.float64]
    groups: NDArray[np.uint64]

    def grouped(self, label: int) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint8]]:
        """Groups, and the bins and a label of the samples that have one, [m] each or [0]."""
        count = len(self.groups)
        return self.groups, self.bins[:count, label], self.labels[:count, label]


class _Label:
    """What was counted of one label: of all samples, and of the recent ones."""

    def __init__(self) -> None:
        self.histogram = ScoreHistogram()
        self.gauc = WindowedGauc(RECENT_SAMPLES)
        self.recent = ScoreHistogram()

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Returns what was counted of all samples, by name."""
        used = np.flatnonzero(self.histogram.counts)
        return {"bins": used, "counts": self.histogram.counts[used], **self.gauc.save()}

    def load(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Goes back to what `save` returned."""
        self.histogram.load(saved["bins"], saved["counts"])
        self.gauc.load(saved)


class Progress:
    """How good the model was over the iterations that all workers have reported.

    Attributes:
        samples: how many samples these iterations hold.
    """

    def __init__(self, workers: int, labels: int = 1) -> None:
        self._workers = workers
        self._open: dict[int, dict[int, IterationReport]] = {}  # by iteration and slot
        self._changes = 0  # rises with every change, when it is complete
        self._figures: dict[tuple[int, bool], tuple[int, Quality]] = {}  # and as of which change, by label
        self._begin(labels)

    def _begin(self, labels: int) -> None:
        self._labels = [_Label() for _ in range(labels)]
        self._loss_sums = np.zeros(1 + labels)
        self.samples = 0
        self._recent: deque[_Iteration] = deque()
        self._recent_samples = 0

    def add(self, slot: int, report: IterationReport) -> bool:
        """Takes one worker's report. Returns whether it was the last one of its iteration.

        Each worker reports its iterations in order and once, so iterations complete in order, too.
        """
        reports = self._open.setdefault(report.iteration, {})
        reports[slot] = report
        if len(reports) < self._workers:
            return False
        parts = [part for _, part in sorted(self._open.pop(report.iteration).items())]
        losses = [np.array([part.loss_sum, *(part.label_loss_sums or (part.loss_sum,))]) for part in parts]
        for each in losses:
            self._loss_sums += each
        iteration = _Iteration(
            np.concatenate([part.score_bins for part in parts]),
            np.concatenate([part.labels for part in parts]),
            sum(losses, np.zeros_like(self._loss_sums)),
            np.concatenate([_NO_GROUPS, *(part.groups for part in parts if part.groups is not None)]),
        )
        self.samples += len(iteration.labels)
        for number, label in enumerate(self._labels):
            label.histogram.add(iteration.bins[:, number], iteration.labels[:, number])
            if len(iteration.groups):
                label.gauc.add(*iteration.grouped(number))
        self._remember(iteration)
        self._changes += 1
        return True

    def _remember(self, iteration: _Iteration) -> None:
        self._recent.append(iteration)
        self._recent_samples += len(iteration.labels)
        oldest: list[_Iteration] = []
        while self._recent_samples - len(self._recent[0].labels) >= RECENT_SAMPLES:
            oldest.append(self._recent.popleft())
            self._recent_samples -= len(oldest[-1].labels)
        for number, label in enumerate(self._labels):
            label.recent.add(iteration.bins[:, number], iteration.labels[:, number])
            for each in oldest:
                label.recent.remove(each.bins[:, number], each.labels[:, number])

    def save(self) -> bytes:
        """Returns the progress over all complete iterations, for `load`."""
        buffer = io.BytesIO()
        further = {
            f"{number}/{name}": array
            for number, label in enumerate(self._labels[1:], start=1)
            for name, array in label.save().items()
        }
        np.savez(
            buffer,
            loss_sum=self._loss_sums[0],
            label_loss_sums=self._loss_sums[1:],
            samples=np.int64(self.samples),
            recent_bins=_joined([each.bins for each in self._recent], np.uint16),
            recent_labels=_joined([each.labels for each in self._recent], np.uint8),
            recent_sizes=np.array([len(each.labels) for each in self._recent], np.int64),
            recent_losses=np.array([each.loss_sums[0] for each in self._recent], np.float64),
            recent_label_losses=_joined([each.loss_sums[np.newaxis, 1:] for each in self._recent], np.float64),
            recent_groups=np.concatenate([_NO_GROUPS, *(each.groups for each in self._recent)]),
            recent_grouped=np.array([len(each.groups) for each in self._recent], np.int64),
            **(self._labels[0].save() | further),  # type: ignore[arg-type]
        )
        return buffer.getvalue()

    def load(self, saved: bytes | None, workers: int) -> None:
        """Goes back to what `save` returned, or to the beginning for None; from there on `workers` workers report."""
        self._workers = workers
        self._open.clear()
        self._begin(len(self._labels))
        if saved is not None:
            with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
                self._labels[0].load(arrays)
                for number, label in enumerate(self._labels[1:], start=1):
                    of_label = f"{number}/"
                    names = [name for name in arrays.files if name.startswith(of_label)]
                    label.load({name.removeprefix(of_label): arrays[name] for name in names})
                # Checkpoints of version 0.2 have no sums by label, and one label, whose sums are those of all.
                all_losses, recent_losses = arrays["loss_sum"].reshape(1), arrays["recent_losses"][:, np.newaxis]
                of_labels = arrays.get("label_loss_sums", all_losses)
                recent_of_labels = arrays.get("recent_label_losses", recent_losses)
                self._loss_sums = np.concatenate((all_losses, of_labels))
                self.samples = int(arrays["samples"])
                ends = np.cumsum(arrays["recent_sizes"])[:-1]
                bins, labels = (np.split(arrays[name], ends) for name in ("recent_bins", "recent_labels"))
                groups = np.split(arrays["recent_groups"], np.cumsum(arrays["recent_grouped"])[:-1])
                losses = np.concatenate((recent_losses, recent_of_labels), axis=1)
                for iteration in zip(bins, labels, losses, groups, strict=False):
                    self._remember(_Iteration(*iteration))
        self._changes += 1

    @property
    def loss(self) -> float:
        """Mean logistic loss over all samples; NaN before the first."""
        return float(self._loss_sums[0]) / self.samples if self.samples else math.nan

    @property
    def auc(self) -> float:
        """Area under the ROC curve over all samples; NaN until both labels were seen."""
        return self._labels[0].histogram.auc()

    @property
    def lifetime(self) -> Quality:
        """The figures over all samples: the first label's, with the loss that is trained."""
        return replace(self.lifetime_of(0), loss=self.loss)

    @property
    def lifetime_labels(self) -> tuple[Quality, ...]:
        """The figures over all samples, label by label."""
        return tuple(map(self.lifetime_of, range(len(self._labels))))

    @property
    def recent(self) -> Quality:
        """As `lifetime`, over the latest iterations, those that hold the last 32,768 samples."""
        loss_sum, samples = self._recent_loss(0, tuple(self._recent))
        return replace(self.recent_of(0), loss=loss_sum / samples if samples else math.nan)

    @property
    def recent_labels(self) -> tuple[Quality, ...]:
        """As `lifetime_labels`, over the latest iterations."""
        return tuple(map(self.recent_of, range(len(self._labels))))

    def lifetime_of(self, label: int) -> Quality:
        """Returns the figures of a label, by its number, over all samples."""
        return self._known(label, recent=False)

    def recent_of(self, label: int) -> Quality:
        """Returns the figures of a label, by its number, over the latest iterations."""
        return self._known(label, recent=True)

    def _known(self, label: int, *, recent: bool) -> Quality:
        """Returns figures, which are computed once between two changes: whoever looks asks for them one by one."""
        changes = self._changes  # metrics are read in another thread: what changes meanwhile is computed again
        known = self._figures.get((label, recent))
        if known is None or known[0] != changes:
            compute = self._recently if recent else self._lifetime
            known = self._figures[label, recent] = changes, compute(label)
        return known[1]

    def _lifetime(self, number: int) -> Quality:
        label = self._labels[number]
        return label.histogram.quality(float(self._loss_sums[1 + number]), self.samples, label.gauc.value)

    def _recently(self, number: int) -> Quality:
        recent = tuple(self._recent)  # metrics are read in another thread
        loss_sum, samples = self._recent_loss(1 + number, recent)
        gauc = mean_gauc([each.grouped(number) for each in recent if len(each.groups)])
        return self._labels[number].recent.quality(loss_sum, samples, gauc)

    @staticmethod
    def _recent_loss(place: int, recent: Sequence[_Iteration]) -> tuple[float, int]:
        """Returns one of the sums of losses over some iterations, and how many samples they hold."""
        return sum(float(each.loss_sums[place]) for each in recent), sum(len(each.labels) for each in recent)


def _joined(columns: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.zeros((0, 1), dtype)
