"""The streaming AUC equals the exact one on binned scores; loss does not depend on the order of reports."""

import io
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esd.dispatcher.core.progress import Progress
from esd.dispatcher.core.scores import ScoreHistogram, Scores
from esd.services.domain.reports import IterationReport, PhaseTimes, TransferCounts
from testbed.auc import exact_auc


def scores(bins: list[int], labels: list[int]) -> Scores:
    counted = ScoreHistogram()
    counted.add(np.array(bins, np.uint16), np.array(labels, np.uint8))
    return counted.scores()


def test_auc_by_hand() -> None:
    assert scores([1, 2, 3, 4], [0, 0, 1, 1]).auc() == 1.0
    assert scores([4, 3, 2, 1], [0, 0, 1, 1]).auc() == 0.0
    assert scores([7, 7], [0, 1]).auc() == 0.5
    assert scores([0, 65535, 5, 5], [0, 1, 1, 0]).auc() == pytest.approx((1 + 1 + 1 + 0.5) / 4)


@pytest.mark.parametrize("labels", [[], [0, 0], [1, 1]])
def test_auc_needs_both_labels(labels: list[int]) -> None:
    assert math.isnan(scores([3] * len(labels), labels).auc())


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(0, 65535), st.integers(100, 103)), st.integers(0, 1)), min_size=2, max_size=200
    ).filter(lambda pairs: {label for _, label in pairs} == {0, 1}),
    st.integers(1, 5),
)
def test_auc_equals_the_exact_one(pairs: list[tuple[int, int]], parts: int) -> None:
    bins = np.array([b for b, _ in pairs], np.uint16)
    labels = np.array([label for _, label in pairs], np.uint8)
    counted = ScoreHistogram()
    for some_bins, some_labels in zip(np.array_split(bins, parts), np.array_split(labels, parts), strict=True):
        counted.add(some_bins, some_labels)
    assert counted.scores().auc() == pytest.approx(exact_auc(bins, labels), abs=1e-12)


def report(iteration: int, loss_sum: float, bins: list[int], labels: list[int]) -> IterationReport:
    return IterationReport(
        iteration,
        loss_sum,
        np.array(bins, np.uint16)[:, None],
        np.array(labels, np.uint8)[:, None],
        TransferCounts(),
        PhaseTimes(),
        seconds=0.0,
        epoch=0,
    )


def test_loss_is_the_same_whoever_reports_first() -> None:
    losses = [0.1, 1e16, -1e16 + 2e16, 0.3]  # their sum depends on the order of additions
    results = set()
    for order in itertools.permutations(range(4)):
        progress = Progress(workers=4)
        completed = [progress.add(slot, report(0, losses[slot], [slot], [slot % 2])) for slot in order]
        assert completed == [False, False, False, True]
        results.add((progress.loss, progress.auc, progress.samples))
    assert results == {((((0.1 + 1e16) + 1e16) + 0.3) / 4, 0.75, 4)}


def test_normalised_entropy_and_calibration_by_hand() -> None:
    """Four predictions of 1/4 (the middle of bin 16383 is half a bin below), of which one comes true: as good as
    always predicting the mean. Of 3/4 for the same samples, three times as much is predicted as comes true."""
    quarter, right = 1 << 14, [1, 0, 0, 0]
    entropy = -(math.log(1 / 4) + 3 * math.log(3 / 4)) / 4
    guessing = scores([quarter] * 4, right).quality(4 * entropy, 4)
    assert guessing.normalised_entropy == pytest.approx(1)
    assert guessing.calibration == pytest.approx(1, abs=1e-4)
    assert guessing.loss == pytest.approx(entropy)
    assert scores([3 * quarter] * 4, right).quality(8 * entropy, 4).calibration == pytest.approx(3, abs=1e-4)
    assert scores([3 * quarter] * 4, right).quality(8 * entropy, 4).normalised_entropy == pytest.approx(2)


@pytest.mark.parametrize("labels", [[], [0, 0]])
def test_what_needs_a_positive_label_waits_for_one(labels: list[int]) -> None:
    quality = scores([3] * len(labels), labels).quality(1.0, len(labels))
    assert math.isnan(quality.normalised_entropy)
    assert math.isnan(quality.calibration)


def test_recent_figures_are_those_of_the_latest_iterations() -> None:
    """Of iterations of 12,000 samples the latest three hold 32,768; the first of four is not among them."""
    random = np.random.default_rng(0)
    progress, parts = Progress(workers=1), []
    for iteration in range(4):
        bins = random.integers(0, 65536, 12_000).astype(np.uint16)
        labels = (random.random(12_000) < (0.9 if iteration == 0 else 0.2)).astype(np.uint8)
        progress.add(0, report(iteration, 1000.0 * (iteration + 1), bins.tolist(), labels.tolist()))
        parts.append((bins, labels))
    latest = ScoreHistogram()
    for bins, labels in parts[1:]:
        latest.add(bins, labels)
    assert progress.figures().recent == latest.scores().quality(2000.0 + 3000.0 + 4000.0, 36_000)
    assert progress.figures().lifetime.loss == pytest.approx(10_000 / 48_000)
    assert progress.figures().lifetime.calibration < progress.figures().recent.calibration

    again = Progress(workers=1)
    again.load(progress.save(), workers=1)
    for each in (progress, again):
        each.add(0, report(4, 5.0, [1] * 20_000, [0, 1] * 10_000))
    assert again.figures().recent == progress.figures().recent
    assert again.figures().lifetime == progress.figures().lifetime


def test_each_label_has_its_own_figures() -> None:
    """Of clicks half are guessed, of purchases none; the loss that is trained is the mean of both."""
    half, bins, labels = (
        1 << 15,
        np.array([[1 << 15, 9], [1 << 15, 1]], np.uint16),
        np.array([[1, 1], [0, 0]], np.uint8),
    )
    both = replace(
        report(0, 2.0, [half, half], [1, 0]), score_bins=bins, labels=labels, label_loss_sums=(2 * math.log(2), 2.5)
    )
    progress, again = Progress(workers=1, labels=2), Progress(workers=1, labels=2)
    progress.add(0, replace(both, groups=np.array([7, 7], np.uint64)))
    again.load(progress.save(), workers=1)
    for each in (progress, again):
        figures = each.figures()
        clicked, bought = figures.lifetime_labels
        assert (clicked.loss, clicked.normalised_entropy, clicked.auc) == pytest.approx((math.log(2), 1.0, 0.5))
        assert (bought.loss, bought.auc, bought.gauc) == (1.25, 1.0, 1.0)
        assert bought.normalised_entropy == pytest.approx(1.25 / math.log(2))
        assert figures.recent_labels == figures.lifetime_labels
        assert figures.lifetime == figures.recent == replace(clicked, loss=1.0)
        assert [figures.lifetime_of(0), figures.recent_of(1)] == [clicked, bought]
        each.add(0, replace(both, iteration=1, label_loss_sums=(0.0, 0.0)))
        changed = each.figures()
        assert changed.lifetime_labels[1].loss == changed.recent_of(1).loss == 0.625


def test_checkpoints_of_version_0_2_are_read() -> None:
    progress = Progress(workers=1)
    progress.add(0, replace(report(0, 1.5, [5, 9], [0, 1]), groups=np.array([7, 7], np.uint64)))
    with np.load(io.BytesIO(progress.save())) as arrays:
        before = {name: arrays[name] for name in arrays.files if "label_" not in name}
    buffer = io.BytesIO()
    np.savez(buffer, **before)
    again = Progress(workers=1)
    again.load(buffer.getvalue(), workers=1)
    loaded, kept = again.figures(), progress.figures()
    assert (loaded.lifetime, loaded.recent) == (kept.lifetime, kept.recent)


def test_gauc_is_of_the_samples_that_have_groups() -> None:
    """Within group 7 the model is right, within 9 wrong; a worker without samples has no groups either."""
    progress = Progress(workers=2)
    progress.add(0, replace(report(0, 1.0, [1, 2, 9], [0, 1, 0]), groups=np.array([7, 7, 9], np.uint64)))
    progress.add(1, report(0, 0.0, [], []))
    assert progress.figures().lifetime.gauc == progress.figures().recent.gauc == 1.0
    again = Progress(workers=2)
    again.load(progress.save(), workers=2)
    for each in (progress, again):
        each.add(0, replace(report(1, 1.0, [5], [1]), groups=np.array([9], np.uint64)))
        each.add(1, replace(report(1, 1.0, [4, 6], [1, 0]), groups=np.array([7, 9], np.uint64)))
        assert each.figures().lifetime.gauc == each.figures().recent.gauc == pytest.approx((3 * 1.0 + 3 * 0.0) / 6)


def test_only_complete_iterations_count() -> None:
    progress = Progress(workers=2)
    assert math.isnan(progress.loss)
    assert not progress.add(0, report(0, 2.0, [1, 2], [0, 1]))
    assert not progress.add(0, report(1, 4.0, [1, 2], [1, 0]))  # worker 0 is ahead
    assert progress.samples == 0
    assert progress.add(1, report(0, 1.0, [3], [1]))
    assert progress.samples == 3
    assert progress.loss == 1.0
    assert progress.auc == 1.0
    assert progress.add(1, report(1, 0.0, [], []))  # a worker without samples reports, too
    assert progress.samples == 5


def test_progress_goes_back_and_on_with_fewer_workers():
    progress = Progress(2)
    for slot in (0, 1):
        progress.add(slot, report(0, 1.0, [10], [1]))
    saved, loss = progress.save(), progress.loss
    progress.add(0, report(1, 5.0, [20], [0]))
    progress.load(saved, workers=1)
    assert (progress.loss, progress.samples) == (loss, 2)
    assert progress.add(1, report(1, 2.0, [5], [0]))  # the only one that is left
    assert progress.loss == pytest.approx(4.0 / 3)
    assert progress.auc == 1.0
    progress.load(None, workers=2)
    assert progress.samples == 0
    assert not progress.add(0, report(0, 1.0, [10], [1]))


def test_drift_is_the_mean_over_averages_of_the_largest_of_a_worker_and_goes_back_with_a_checkpoint() -> None:
    progress = Progress(2)
    assert progress.dense_drift == 0
    drifts = [(0.1, 0.3), (0.0, 0.0), (0.0, 0.5)]  # the second iteration has no average
    for iteration, of_workers in enumerate(drifts):
        saved = progress.save()
        for slot, drift in enumerate(of_workers):
            progress.add(slot, replace(report(iteration, 1.0, [10], [1]), drift=drift))
    assert progress.dense_drift == pytest.approx(0.4)
    progress.load(saved, workers=2)
    assert progress.dense_drift == pytest.approx(0.3)
    progress.load(None, workers=2)
    assert progress.dense_drift == 0


def test_figures_are_those_of_their_moment() -> None:
    def grouped(iteration: int, bins: list[int], labels: list[int]) -> IterationReport:
        return replace(report(iteration, 1.0, bins, labels), groups=np.zeros(len(bins), np.uint64))

    progress, stopped = Progress(workers=1), Progress(workers=1)
    for each in (progress, stopped):
        each.add(0, grouped(0, [10, 20], [0, 1]))
    taken, expected = progress.figures(), stopped.figures()
    assert progress.figures() is taken
    progress.add(0, grouped(1, [30, 5, 7], [0, 1, 1]))
    assert (taken.lifetime, taken.recent) == (expected.lifetime, expected.recent)
    assert (taken.lifetime_labels, taken.recent_labels) == (expected.lifetime_labels, expected.recent_labels)
    assert progress.figures().lifetime.auc < taken.lifetime.auc == 1.0
    assert progress.figures().lifetime.gauc < taken.lifetime.gauc == 1.0
