"""Progressive validation: every sample is scored before it is trained, and the scores measure the model's quality.

Figures are by label. The figures of a job with several labels are the first label's, with the trained loss. All figures
are functions of the stream alone: counts are integers, and losses are summed in the order (iteration, worker slot),
independent of the order of the reports. Each figure exists over all samples and over the latest samples.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.figures import Figures, Iteration, LabelScores
from esd.dispatcher.core.grouped_auc import FullWindow, WindowedGauc
from esd.dispatcher.core.scores import ScoreHistogram, mean_loss
from esd.services.domain.reports import IterationReport

RECENT_SAMPLES = 1 << 15  # the latest iterations that hold this many samples are the recent ones
_NO_GROUPS = np.empty(0, np.uint64)


class _Label:
    """The counts of one label: of all samples, and of the recent samples."""

    def __init__(self) -> None:
        self.histogram = ScoreHistogram()
        self.gauc = WindowedGauc(RECENT_SAMPLES)
        self.recent = ScoreHistogram()

    def counted(self) -> LabelScores:
        """Returns a copy of the counts so far."""
        return LabelScores(self.histogram.scores(), self.gauc.copy(), self.recent.scores())

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Returns the counts of all samples, by name."""
        used = np.flatnonzero(self.histogram.counts)
        return {"bins": used, "counts": self.histogram.counts[used], **self.gauc.save()}

    def load(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Restores the result of `save`."""
        self.histogram.load(saved["bins"], saved["counts"])
        self.gauc.load(saved)


class Progress:
    """The quality of the model over the iterations that all workers have reported.

    Attributes:
        samples: the number of samples of these iterations.
        filled: the windows of GAUC that the latest iteration has filled; see WindowedGauc.add.
    """

    def __init__(self, workers: int, labels: int = 1) -> None:
        self._workers = workers
        self._open: dict[int, dict[int, IterationReport]] = {}  # by iteration and slot
        self._changes = 0  # rises after every change, so that another thread never keeps figures of half a change
        self._figures: tuple[int, Figures] | None = None  # with the value of `_changes` that they belong to
        self._begin(labels)

    def _begin(self, labels: int) -> None:
        self._labels = [_Label() for _ in range(labels)]
        self._drifts, self._averages = 0.0, 0  # sum of the largest of each average, and the number of averages
        self._loss_sums: tuple[float, ...] = (0.0,) * (1 + labels)
        self.samples = 0
        self.filled: list[FullWindow] = []
        self._recent: deque[Iteration] = deque()
        self._recent_samples = 0

    def figures(self) -> Figures:
        """Returns the figures of the complete iterations; the same object until another iteration completes."""
        changes, known = self._changes, self._figures  # read once, because another thread may call this as well
        if known is None or known[0] != changes:
            counted = tuple(label.counted() for label in self._labels)
            known = changes, Figures(counted, self._loss_sums, self.samples, tuple(self._recent))
            self._figures = known
        return known[1]

    def add(self, slot: int, report: IterationReport) -> bool:
        """Adds one worker's report. Returns whether it completes its iteration.

        Each worker reports its iterations in order and once, so iterations complete in order, too.
        """
        reports = self._open.setdefault(report.iteration, {})
        reports[slot] = report
        if len(reports) < self._workers:
            return False
        parts = [part for _, part in sorted(self._open.pop(report.iteration).items())]
        losses = [(part.loss_sum, *(part.label_loss_sums or (part.loss_sum,))) for part in parts]
        self._loss_sums = reduce(_added, losses, self._loss_sums)
        iteration = Iteration(
            np.concatenate([part.score_bins for part in parts]),
            np.concatenate([part.labels for part in parts]),
            reduce(_added, losses),
            np.concatenate([_NO_GROUPS, *(part.groups for part in parts if part.groups is not None)]),
        )
        self.samples += len(iteration.labels)
        if drift := max(part.drift for part in parts):
            self._drifts += drift
            self._averages += 1
        self.filled = []
        for number, label in enumerate(self._labels):
            label.histogram.add(iteration.bins[:, number], iteration.labels[:, number])
            if len(iteration.groups) and (filled := label.gauc.add(*iteration.grouped(number))):
                self.filled.append(filled)
        self._remember(iteration)
        self._changes += 1
        return True

    def _remember(self, iteration: Iteration) -> None:
        self._recent.append(iteration)
        self._recent_samples += len(iteration.labels)
        oldest: list[Iteration] = []
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
            loss_sum=np.float64(self._loss_sums[0]),
            label_loss_sums=np.array(self._loss_sums[1:]),
            samples=np.int64(self.samples),
            drifts=np.array([self._drifts, self._averages]),
            recent_bins=_joined([each.bins for each in self._recent], np.uint16),
            recent_labels=_joined([each.labels for each in self._recent], np.uint8),
            recent_sizes=np.array([len(each.labels) for each in self._recent], np.int64),
            recent_losses=np.array([each.loss_sums[0] for each in self._recent], np.float64),
            recent_label_losses=np.reshape([each.loss_sums[1:] for each in self._recent], (-1, len(self._labels))),
            recent_groups=np.concatenate([_NO_GROUPS, *(each.groups for each in self._recent)]),
            recent_grouped=np.array([len(each.groups) for each in self._recent], np.int64),
            **(self._labels[0].save() | further),  # type: ignore[arg-type]
        )
        return buffer.getvalue()

    def load(self, saved: bytes | None, workers: int) -> None:
        """Restores the result of `save`, or the beginning for None; from then on `workers` workers report."""
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
                # Checkpoints of version 0.2 have a single label and no sums by label: its sums equal the total.
                all_losses, recent_losses = arrays["loss_sum"].reshape(1), arrays["recent_losses"][:, np.newaxis]
                of_labels = arrays.get("label_loss_sums", all_losses)
                recent_of_labels = arrays.get("recent_label_losses", recent_losses)
                self._loss_sums = (*all_losses.tolist(), *of_labels.tolist())
                self.samples = int(arrays["samples"])
                drifts, averages = arrays.get("drifts", np.zeros(2)).tolist()  # none before version 0.3
                self._drifts, self._averages = drifts, int(averages)
                ends = np.cumsum(arrays["recent_sizes"])[:-1]
                bins, labels = (np.split(arrays[name], ends) for name in ("recent_bins", "recent_labels"))
                groups = np.split(arrays["recent_groups"], np.cumsum(arrays["recent_grouped"])[:-1])
                losses = np.concatenate((recent_losses, recent_of_labels), axis=1)
                for iteration in zip(bins, labels, map(tuple, losses.tolist()), groups, strict=False):
                    self._remember(Iteration(*iteration))
        self._changes += 1

    @property
    def loss(self) -> float:
        """Mean logistic loss over all samples; NaN before the first."""
        return mean_loss(self._loss_sums[0], self.samples)

    @property
    def dense_drift(self) -> float:
        """Mean over the averages of dense parameters of the largest drift of a worker; 0 before the first."""
        return self._drifts / self._averages if self._averages else 0.0

    @property
    def auc(self) -> float:
        """Area under the ROC curve over all samples; NaN until both labels were seen."""
        return self._labels[0].histogram.scores().auc()


def _added(sums: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(add, sums, more))


def _joined(columns: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(columns) if columns else np.zeros((0, 1), dtype)
