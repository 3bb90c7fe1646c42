"""The evaluations of a job: the latest are kept, once each, with its checkpoints, and shown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from esd.dispatcher.service.state.evaluations import Evaluations
from esd.dispatcher.service.state.manifest import Manifest
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import KEPT_EVALUATIONS, Evaluation, Quality, Ranking
from esd.services.runtime.metrics import REGISTRY
from esd.services.wire.state import decode_evaluation, encode_evaluation

LABELS = ("clicked", "bought")
CLICKED = Quality(0.5, 0.75, 0.9, 1.1, 0.6)
BOUGHT = Quality(0.25, math.nan, math.nan, 0.5)


def at(iteration: int, auc: float = 0.75) -> Evaluation:
    return Evaluation(iteration, (replace(CLICKED, auc=auc), BOUGHT))


def test_each_iteration_is_there_once_with_what_was_recorded_last() -> None:
    evaluations = Evaluations(LABELS, [at(10)])
    evaluations.record([at(30), at(20)], trained=30)
    evaluations.record([at(20, auc=0.8)], trained=40)
    assert [(each.iteration, each.labels[0].auc) for each in evaluations.latest] == [(10, 0.75), (20, 0.8), (30, 0.75)]


def test_the_latest_are_kept() -> None:
    evaluations = Evaluations(LABELS, [])
    evaluations.record(map(at, range(KEPT_EVALUATIONS + 5)), trained=1000)
    assert [each.iteration for each in evaluations.latest] == list(range(5, KEPT_EVALUATIONS + 5))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (Evaluation(5, (CLICKED,)), "at iteration 5 is of 1 labels, the job has 2"),
        (at(11), "at iteration 11, 10 are trained"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_added(refused: Evaluation, message: str) -> None:
    evaluations = Evaluations(LABELS, [])
    with pytest.raises(InvalidArgument, match=message):
        evaluations.record([at(5), refused], trained=10)
    assert evaluations.latest == ()


def test_checkpoints_and_calls_carry_them() -> None:
    recorded = (at(10), replace(at(20), ranking=Ranking(0.45, 0.25, 0.5, 0.75)))
    for found in (
        Manifest.decode(Manifest({}, evaluations=recorded).encode()).evaluations,
        map(decode_evaluation, map(encode_evaluation, recorded)),
    ):
        assert [repr(each) for each in found] == [repr(each) for each in recorded]  # NaN is not equal to itself


def test_prometheus_shows_the_latest_by_label() -> None:
    Evaluations(LABELS, [at(10)]).record([at(20, auc=0.8)], trained=20)
    shown = {
        (figure, label): REGISTRY.get_sample_value(f"esd_held_out_{figure}", {"label": label})
        for figure in ("loss", "auc", "normalised_entropy", "calibration", "gauc")
        for label in LABELS
    }
    golden = {"loss": (0.5, 0.25), "auc": (0.8, None), "normalised_entropy": (0.9, None), "calibration": (1.1, 0.5)}
    for figure, values in (golden | {"gauc": (0.6, None)}).items():
        for label, value in zip(LABELS, values, strict=True):
            found = shown[figure, label]
            assert math.isnan(found) if value is None else found == value, (figure, label)
    assert REGISTRY.get_sample_value("esd_held_out_iteration") == 20


def test_the_trained_loss_is_the_mean_over_the_labels() -> None:
    assert at(1).quality == replace(CLICKED, loss=0.375)
    with pytest.raises(InvalidArgument, match="figures of 0 labels"):
        Evaluation(1, ())
