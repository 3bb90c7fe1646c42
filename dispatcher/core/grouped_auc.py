"""GAUC: the AUC within each group of samples, such as those of one user, averaged over the groups.

It tells whether a model ranks the samples that compete with each other, where the AUC over all of them also rewards
knowing which users click. Groups count by their samples; those without both labels say nothing, and are left out
(Zhu et al., "Optimized Cost per Click in Taobao Display Advertising", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.domain.reports import OTHER_LABEL

Grouped = tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint8]]  # groups, score bins and labels, [m] each


def grouped_auc(groups: NDArray[np.uint64], bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> tuple[float, int]:
    """Returns the AUC of each group times its samples, added up, and the samples of these groups.

    Args:
        groups: uint64 [m].
        bins: uint16 [m], score bins; equal ones count half.
        labels: uint8 [m]; only labels 0 and 1 count.
    """
    counted = labels < OTHER_LABEL
    order = np.lexsort((bins[counted], groups[counted]))
    if not len(order):
        return 0.0, 0
    groups, bins, labels = groups[counted][order], bins[counted][order], labels[counted][order]
    new_group = np.append(True, groups[1:] != groups[:-1])
    new_tie = new_group | np.append(True, bins[1:] != bins[:-1])
    ties, begins = np.flatnonzero(new_tie), np.flatnonzero(new_group)
    positives = np.add.reduceat(labels.astype(np.int64), ties)  # of samples with one score in one group
    negatives = np.diff(np.append(ties, len(labels))) - positives
    first = np.searchsorted(ties, begins)  # of the ties of each group
    lower = np.cumsum(negatives) - negatives
    lower -= np.repeat(lower[first], np.diff(np.append(first, len(ties))))
    won = np.add.reduceat(positives * (lower + negatives / 2), first)
    up, down = np.add.reduceat(positives, first), np.add.reduceat(negatives, first)
    both = (up > 0) & (down > 0)
    samples = (up + down)[both]
    return float(np.sum(won[both] / (up[both] * down[both]) * samples)), int(samples.sum())


def mean_gauc(parts: Sequence[Grouped]) -> float:
    """Returns the GAUC of all samples of some parts together; NaN if no group has both labels."""
    won, samples = grouped_auc(*_joined(parts))
    return won / samples if samples else math.nan


class WindowedGauc:
    """The GAUC of a stream of any length in bounded memory: that of consecutive windows, averaged by their samples.

    A group counts in every window for itself, so users who come back are compared with what they did at the time.

    Args:
        window: samples of a window, at least; it ends with an iteration.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._won = 0.0
        self._samples = 0
        self._parts: list[Grouped] = []

    def add(self, groups: NDArray[np.uint64], bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> None:
        """Takes the samples of one iteration: groups, score bins and labels, [m] each."""
        self._parts.append((groups, bins, labels))
        if sum(len(part[0]) for part in self._parts) >= self._window:
            won, samples = grouped_auc(*_joined(self._parts))
            self._won, self._samples = self._won + won, self._samples + samples
            self._parts.clear()

    @property
    def value(self) -> float:
        """The GAUC, with that of the window that is not full yet; NaN before a group had both labels."""
        won, samples = grouped_auc(*_joined(self._parts))
        total = self._samples + samples
        return (self._won + won) / total if total else math.nan

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Returns what `load` takes, by name."""
        groups, bins, labels = _joined(self._parts)
        totals = np.array([self._won, self._samples], np.float64)
        return {"gauc": totals, "gauc_groups": groups, "gauc_bins": bins, "gauc_labels": labels}

    def load(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Goes back to what `save` returned."""
        won, samples = saved["gauc"]
        self._won, self._samples = float(won), int(samples)
        columns = saved["gauc_groups"], saved["gauc_bins"], saved["gauc_labels"]
        self._parts = [columns] if len(columns[0]) else []  # type: ignore[list-item]


def _joined(parts: Sequence[Grouped]) -> Grouped:
    """Joins the columns of parts, to which another thread may add meanwhile."""
    none = np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint8)
    groups, bins, labels = zip(none, *parts, strict=True)
    return np.concatenate(groups), np.concatenate(bins), np.concatenate(labels)
