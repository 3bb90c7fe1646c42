"""The quality of the model at one moment: figures over all complete iterations, and over the latest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.grouped_auc import WindowedGauc, mean_gauc
from esd.dispatcher.core.scores import Scores, mean_loss
from esd.services.domain.state import Quality


class Iteration(NamedTuple):
    """The scores of one iteration.

    Attributes:
        bins: uint16 [m, L].
        labels: uint8 [m, L].
        loss_sums: 1 + L sums of losses: of the trained loss, then of each label.
        groups: uint64 [m], or [0] if the samples have no groups.
    """

    bins: NDArray[np.uint16]
    labels: NDArray[np.uint8]
    loss_sums: tuple[float, ...]
    groups: NDArray[np.uint64]

    def grouped(self, label: int) -> tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint8]]:
        """Returns groups, bins and one label of the samples, [m] each; [0] if the samples have no groups."""
        count = len(self.groups)
        return self.groups, self.bins[:count, label], self.labels[:count, label]


class LabelScores(NamedTuple):
    """The counts of one label.

    Attributes:
        scores: the scores of all samples.
        gauc: the GAUC of all samples.
        recent: the scores of the recent samples.
    """

    scores: Scores
    gauc: WindowedGauc
    recent: Scores


class Figures:
    """The figures over some iterations. Each is computed at its first use, in the caller's thread, and kept.

    Args:
        labels: the counts of each label.
        loss_sums: 1 + L sums of losses over all samples: of the trained loss, then of each label.
        samples: the number of samples.
        recent: the latest iterations.
    """

    def __init__(
        self,
        labels: Sequence[LabelScores],
        loss_sums: Sequence[float],
        samples: int,
        recent: Sequence[Iteration],
    ) -> None:
        self._labels = labels
        self._loss_sums = loss_sums
        self._samples = samples
        self._recent = recent
        self._known: dict[tuple[int, bool], Quality] = {}

    @property
    def lifetime(self) -> Quality:
        """The figures over all samples: the first label's, with the trained loss."""
        return replace(self.lifetime_of(0), loss=mean_loss(self._loss_sums[0], self._samples))

    @property
    def lifetime_labels(self) -> tuple[Quality, ...]:
        """The figures over all samples, label by label."""
        return tuple(map(self.lifetime_of, range(len(self._labels))))

    @property
    def recent(self) -> Quality:
        """The same as `lifetime`, over the latest iterations."""
        return replace(self.recent_of(0), loss=mean_loss(*self._recent_loss(0)))

    @property
    def recent_labels(self) -> tuple[Quality, ...]:
        """The same as `lifetime_labels`, over the latest iterations."""
        return tuple(map(self.recent_of, range(len(self._labels))))

    def lifetime_of(self, label: int) -> Quality:
        """Returns the figures of a label, by its number, over all samples."""
        return self._once((label, False), self._over_all)

    def recent_of(self, label: int) -> Quality:
        """Returns the figures of a label, by its number, over the latest iterations."""
        return self._once((label, True), self._over_recent)

    def _once(self, key: tuple[int, bool], compute: Callable[[int], Quality]) -> Quality:
        known = self._known.get(key)
        if known is None:  # no lock: two threads that race here compute the same value
            known = self._known[key] = compute(key[0])
        return known

    def _over_all(self, number: int) -> Quality:
        label = self._labels[number]
        return label.scores.quality(self._loss_sums[1 + number], self._samples, label.gauc.value)

    def _over_recent(self, number: int) -> Quality:
        loss_sum, samples = self._recent_loss(1 + number)
        gauc = mean_gauc([each.grouped(number) for each in self._recent if len(each.groups)])
        return self._labels[number].recent.quality(loss_sum, samples, gauc)

    def _recent_loss(self, place: int) -> tuple[float, int]:
        """Returns a sum of losses over the latest iterations, by its place in `loss_sums`, and their samples."""
        losses = sum(each.loss_sums[place] for each in self._recent)
        return losses, sum(len(each.labels) for each in self._recent)
