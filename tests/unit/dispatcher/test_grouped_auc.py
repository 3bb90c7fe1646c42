"""GAUC against its definition: the exact AUC of each group, weighted by its samples."""

from __future__ import annotations

import math
import weakref

import numpy as np
import pytest

from esd.dispatcher.core.grouped_auc import MOST_FULL, WindowedGauc, grouped_auc
from testbed.auc import exact_auc


def samples(count: int, groups: int, seed: int = 5):
    rng = np.random.default_rng(seed)
    names = rng.integers(0, 2**63, groups, np.uint64)
    labels = rng.choice([0, 0, 0, 1, 1, 2], count).astype(np.uint8)
    return names[rng.integers(0, groups, count)], rng.integers(0, 50, count).astype(np.uint16) * 1000, labels


def reference(groups, bins, labels) -> tuple[float, int]:
    total, weight = 0.0, 0
    for group in np.unique(groups):
        mine = (groups == group) & (labels < 2)
        if 0 < labels[mine].sum() < mine.sum():
            total += exact_auc(bins[mine], labels[mine]) * mine.sum()
            weight += int(mine.sum())
    return total, weight


def test_two_groups_by_hand() -> None:
    """Within each group the model is right; over all samples it is not."""
    groups = np.array([7, 7, 7, 9, 9, 9, 3], np.uint64)
    bins = np.array([10, 20, 30, 600, 700, 700, 5], np.uint16)
    labels = np.array([0, 1, 1, 0, 0, 1, 1], np.uint8)
    won, weight = grouped_auc(groups, bins, labels)
    assert (won, weight) == (3 * 1.0 + 3 * 0.75, 6)  # the group of one sample says nothing
    assert exact_auc(bins, labels) < 0.5


@pytest.mark.parametrize(("count", "groups"), [(0, 1), (1, 1), (500, 1), (500, 40), (500, 400)])
def test_it_is_the_auc_of_each_group(count: int, groups: int) -> None:
    drawn = samples(count, groups)
    assert grouped_auc(*drawn) == pytest.approx(reference(*drawn))


def test_windows_are_averaged_by_their_samples_and_survive_a_checkpoint() -> None:
    drawn = samples(1000, 30)
    gauc, restored = WindowedGauc(200), WindowedGauc(200)
    assert math.isnan(gauc.value)
    for start in range(0, 950, 50):  # four windows, and one that is not full
        part = tuple(column[start : start + 50] for column in drawn)
        gauc.add(*part)
        if start == 300:
            restored.load(gauc.save())
        elif start > 300:
            restored.add(*part)
    windows = [reference(*(column[start : min(950, start + 200)] for column in drawn)) for start in range(0, 950, 200)]
    expected = sum(won for won, _ in windows) / sum(weight for _, weight in windows)
    assert gauc.value == pytest.approx(expected)
    assert restored.value == gauc.value


def test_a_window_is_computed_by_whoever_asks_and_the_figure_is_the_same_to_the_last_bit() -> None:
    """At once, in another order, by a copy, at a checkpoint, or when too many wait: sums are always in order."""
    drawn = samples(9 * 200, 30)
    at_once, late = WindowedGauc(200), WindowedGauc(200)
    waiting = []
    for start in range(0, 9 * 200, 200):
        part = tuple(column[start : start + 200] for column in drawn)
        if filled := at_once.add(*part):
            filled.figures()
        filled = late.add(*part)
        assert filled is not None
        assert not filled.is_known
        waiting.append(filled)
        assert sum(not window.is_known for window in waiting) <= MOST_FULL
        if start == 400:
            waiting[2].figures()
            restored = WindowedGauc(200)
            restored.load(late.copy().save())
            assert waiting[0].is_known
        elif start > 400:
            restored.add(*part)
    assert not waiting[-1].is_known
    assert at_once.value == late.copy().value == late.value == restored.value
    assert waiting[-1].is_known


def test_samples_of_a_window_are_let_go_of_once_it_is_computed() -> None:
    groups, bins, labels = (column.copy() for column in samples(200, 30))
    gone = weakref.ref(bins)
    filled = WindowedGauc(200).add(groups, bins, labels)
    del groups, bins, labels
    assert gone() is not None
    assert filled is not None
    filled.figures()
    assert gone() is None
