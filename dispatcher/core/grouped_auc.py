"""GAUC: the AUC within each group of samples, such as the samples of one user, averaged over the groups.

It measures the ranking of samples that compete with each other, while the AUC over all samples also rewards knowing
which users click. Groups are weighted by their numbers of samples. Groups without both labels have no AUC, and are left
out (Zhu et al., "Optimized Cost per Click in Taobao Display Advertising", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.reports import OTHER_LABEL

MOST_FULL = 4  # full windows without figures, beyond which `add` computes them itself, so that memory stays bounded

Grouped = tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint8]]  # groups, score bins and labels, [m] each


def grouped_auc(groups: NDArray[np.uint64], bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> tuple[float, int]:
    """Returns the sum over groups of AUC times number of samples, and the number of samples in these groups.

    Args:
        groups: uint64 [m].
        bins: uint16 [m], score bins; a pair of samples in the same bin counts half.
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
    mixed = both[numbers]
    # A single number for group, bin and label sorts several times as fast as three columns.
    keys = np.sort(numbers[mixed] << 17 | bins[mixed].astype(np.int64) << 1 | labels[mixed])
    ties = np.flatnonzero(_changes(keys >> 1))  # the first sample of each (group, bin)
    first = np.flatnonzero(_changes(keys[ties] >> 17))  # the first tie of each group
    positives = np.add.reduceat(keys & 1, ties)
    negatives = np.diff(np.append(ties, len(keys))) - positives
    lower = np.cumsum(negatives) - negatives
    lower -= np.repeat(lower[first], np.diff(np.append(first, len(ties))))
    won = np.add.reduceat(positives * (lower + negatives / 2), first)
    sizes, up = sizes[both], up[both]
    return float(np.sum(won / (up * (sizes - up)) * sizes)), int(sizes.sum())


def _changes(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns for each value whether it differs from the value before it; True for the first."""
    return np.append(True, values[1:] != values[:-1])


def mean_gauc(parts: Sequence[Grouped]) -> float:
    """Returns the GAUC of the samples of all parts together; NaN if no group has both labels."""
    won, samples = grouped_auc(*_joined(parts))
    return won / samples if samples else math.nan


class FullWindow:
    """The samples of one window of a GAUC. Its figures are computed once, in the first caller's thread."""

    def __init__(self, parts: Sequence[Grouped]) -> None:
        self._held: Sequence[Grouped] | tuple[float, int] = parts

    @property
    def is_known(self) -> bool:
        """Whether the figures are computed."""
        return isinstance(self._held, tuple)

    def figures(self) -> tuple[float, int]:
        """Returns the result of `grouped_auc` for the samples, and releases the samples."""
        held = self._held  # no lock: two threads that race here compute the same value
        if not isinstance(held, tuple):
            held = self._held = grouped_auc(*_joined(held))
        return held


class WindowedGauc:
    """The GAUC of a stream of any length in bounded memory: the mean of consecutive windows, weighted by samples.

    A group counts separately in every window, so the samples of a returning user compete only within a window.

    Args:
        window: the smallest number of samples of a window, which ends with an iteration.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._settled = 0.0, 0  # the sum over windows before `_full`
        self._full: tuple[FullWindow, ...] = ()
        self._parts: list[Grouped] = []
        self._count = 0  # samples in parts

    def add(self, groups: NDArray[np.uint64], bins: NDArray[np.uint16], labels: NDArray[np.uint8]) -> FullWindow | None:
        """Adds the samples of one iteration: groups, score bins and labels, [m] each.

        Returns:
            The window that these samples fill; None if they fill none. Its figures take milliseconds, so a caller in an
            event loop calls `figures` in a thread. Otherwise they are computed at the next use of the GAUC, or here
            once more than MOST_FULL windows have none.
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
        """The GAUC, including the window that is not full yet; NaN until a group has both labels."""
        won, samples = _sum(self._of_full(), grouped_auc(*_joined(self._parts)))
        return won / samples if samples else math.nan

    def _of_full(self) -> tuple[float, int]:
        """Returns the sum over all full windows, added in their order."""
        return reduce(_sum, (window.figures() for window in self._full), self._settled)

    def copy(self) -> WindowedGauc:
        """Returns a copy, which later samples do not change."""
        copied = WindowedGauc(self._window)
        copied._settled, copied._full = self._settled, self._full
        copied._parts, copied._count = self._parts.copy(), self._count
        return copied

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Returns the state as arrays by name, for `load`."""
        groups, bins, labels = _joined(self._parts)
        totals = np.array(self._of_full(), np.float64)
        return {"gauc": totals, "gauc_groups": groups, "gauc_bins": bins, "gauc_labels": labels}

    def load(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Restores the result of `save`."""
        won, samples = saved["gauc"]
        self._settled, self._full = (float(won), int(samples)), ()
        columns = saved["gauc_groups"], saved["gauc_bins"], saved["gauc_labels"]
        self._parts = [columns] if len(columns[0]) else []  # type: ignore[list-item]
        self._count = len(columns[0])


def _sum(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


def _joined(parts: Sequence[Grouped]) -> Grouped:
    """Joins the columns of parts. Another thread may append parts meanwhile, so the list is read once."""
    none = np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint8)
    groups, bins, labels = zip(none, *parts, strict=True)
    return np.concatenate(groups), np.concatenate(bins), np.concatenate(labels)
