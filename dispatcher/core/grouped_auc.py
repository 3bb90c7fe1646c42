"""GAUC: the AUC within each group of samples, such as those of one user, averaged over the groups.

It tells whether a model ranks the samples that compete with each other, where the AUC over all of them also rewards
knowing which users click. Groups count by their samples; those without both labels say nothing, and are left out
(Zhu et al., "Optimized Cost per Click in Taobao Display Advertising", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.reports import OTHER_LABEL

MOST_FULL = 4  # windows whose figures nobody has computed yet: memory stays bounded whoever forgets to

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


class FullWindow:
    """Samples of which a GAUC counts as one window. It is computed once, in the thread that asks first."""

    def __init__(self, parts: Sequence[Grouped]) -> None:
        self._held: Sequence[Grouped] | tuple[float, int] = parts

    @property
    def is_known(self) -> bool:
        """Whether it was computed."""
        return isinstance(self._held, tuple)

    def figures(self) -> tuple[float, int]:
        """Returns what `grouped_auc` says of all samples. They are let go of."""
        held = self._held  # of two threads that ask at once, both compute the same
        if not isinstance(held, tuple):
            held = self._held = grouped_auc(*_joined(held))
        return held


class WindowedGauc:
    """The GAUC of a stream of any length in bounded memory: that of consecutive windows, averaged by their samples.

    A group counts in every window for itself, so users who come back are compared with what they did at the time.

    Args:
        window: samples of a window, at least; it ends with an iteration.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._settled = 0.0, 0  # of the windows before the full ones
        self._full: tuple[FullWindow, ...] = ()
        self._parts: list[Grouped] = []
        self._count = 0  # samples in parts

    def add(self, groups: NDArray[np.uint64], bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> FullWindow | None:
        """Takes the samples of one iteration: groups, score bins and labels, [m] each.

        Returns:
            The window that they fill. Its figures take milliseconds, so have a thread ask for them. They are needed
            when the GAUC is, or when more than MOST_FULL windows wait for theirs.
        """
        self._parts.append((groups, bins, labels))
        self._count += len(groups)
        if self._count < self._window:
            return None
        filled = FullWindow(self._parts)
        self._full = (*self._full, filled)
        self._parts, self._count = [], 0
        while self._full and (len(self._full) > MOST_FULL or self._full[0].is_known):
            self._settled, self._full = _sum(self._settled, self._full[0].figures()), self._full[1:]
        return filled

    @property
    def value(self) -> float:
        """The GAUC, with that of the window that is not full yet; NaN before a group had both labels."""
        won, samples = _sum(self._of_full(), grouped_auc(*_joined(self._parts)))
        return won / samples if samples else math.nan

    def _of_full(self) -> tuple[float, int]:
        """Returns what all full windows say, added in their order."""
        return reduce(_sum, (window.figures() for window in self._full), self._settled)

    def copy(self) -> WindowedGauc:
        """Returns one that has taken the same samples."""
        copied = WindowedGauc(self._window)
        copied._settled, copied._full = self._settled, self._full
        copied._parts, copied._count = self._parts.copy(), self._count
        return copied

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Returns what `load` takes, by name."""
        groups, bins, labels = _joined(self._parts)
        totals = np.array(self._of_full(), np.float64)
        return {"gauc": totals, "gauc_groups": groups, "gauc_bins": bins, "gauc_labels": labels}

    def load(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Goes back to what `save` returned."""
        won, samples = saved["gauc"]
        self._settled, self._full = (float(won), int(samples)), ()
        columns = saved["gauc_groups"], saved["gauc_bins"], saved["gauc_labels"]
        self._parts = [columns] if len(columns[0]) else []  # type: ignore[list-item]
        self._count = len(columns[0])


def _sum(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


def _joined(parts: Sequence[Grouped]) -> Grouped:
    """Joins the columns of parts, to which another thread may add meanwhile."""
    none = np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint8)
    groups, bins, labels = zip(none, *parts, strict=True)
    return np.concatenate(groups), np.concatenate(bins), np.concatenate(labels)
