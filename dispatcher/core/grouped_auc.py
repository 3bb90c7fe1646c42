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
    if not counted.all():
        groups, bins, labels = groups[counted], bins[counted], labels[counted]
    numbers = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(numbers)
    up = np.bincount(numbers[labels == 1], minlength=len(sizes))
    both = (up > 0) & (up < sizes)
    if not both.any():
        return 0.0, 0
    says = both[numbers]
    # One number for group, bin and label is sorted several times as fast as three columns are.
    keys = np.sort(numbers[says] << 17 | bins[says].astype(np.int64) << 1 | labels[says])
    ties = np.flatnonzero(_changes(keys >> 1))  # where samples begin that have one score in one group
    first = np.flatnonzero(_changes(keys[ties] >> 17))  # of the ties of each group
    positives = np.add.reduceat(keys & 1, ties)
    negatives = np.diff(np.append(ties, len(keys))) - positives
    lower = np.cumsum(negatives) - negatives
    lower -= np.repeat(lower[first], np.diff(np.append(first, len(ties))))
    won = np.add.reduceat(positives * (lower + negatives / 2), first)
    sizes, up = sizes[both], up[both]
    return float(np.sum(won / (up * (sizes - up)) * sizes)), int(sizes.sum())


def _changes(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tells of each value whether it is another one than that before it, the first one included."""
    return np.append(True, values[1:] != values[:-1])


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
