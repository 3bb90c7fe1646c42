"""The samples of the comparison with plain torch, and its test for a difference of means."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.quality import cluster, dense
from benchmarks.quality import samples as made
from benchmarks.quality.__main__ import compared
from benchmarks.quality.plain_models import PLAIN_MODELS
from esd.services.domain.batches import SampleBatch
from esd.worker.models import MODELS
from tests.support.models import GRAPHS


def batch(ids: list[list[int]], labels: list[int]) -> SampleBatch:
    return SampleBatch.of_fields(np.array(ids, np.uint64), np.empty((len(ids), 0), np.float32), np.float32(labels))


@pytest.mark.parametrize(("liked", "history"), [(True, [10, 12]), (False, [10, 11, 12])])
def test_a_history_is_what_its_owner_had_before_the_batch(liked: bool, history: list[int]) -> None:
    stream = [batch([[1, 10], [1, 11], [2, 20]], [1, 0, 1]), batch([[1, 12]], [1]), batch([[1, 13], [1, 14]], [1, 1])]
    found = made.with_history(stream, [1, 0], 1, liked=liked)  # the listed feature first, its owner second
    assert [each.lengths.tolist() for each in found] == [
        [[1, 1, 0]] * 3,
        [[1, 1, len(history) - 1]],
        [[1, 1, len(history)]] * 2,
    ]
    assert found[2].ids.tolist() == [13, 1, *history, 14, 1, *history]


def test_a_history_holds_the_latest_only() -> None:
    stream = [batch([[1, at]], [1]) for at in range(20)]
    found = made.with_history(stream, [1, 0], 1, liked=True)
    assert found[-1].ids.tolist() == [19, 1, *range(19 - made.HISTORY, 19)]


def test_every_model_is_there_in_plain_torch_and_learns_everywhere() -> None:
    assert set(PLAIN_MODELS) == set(MODELS) - set(GRAPHS)
    names = ("user_id", "user_city", "item_id")
    torch.manual_seed(0)  # one draw out of 75 has a layer of units that are all dead
    for kind in PLAIN_MODELS.values():
        model = kind(names, 6, 4, (8, 4))
        rows, history = torch.randn(5, 3, 6), torch.randn(5, 7, 6)
        logits = model(rows, torch.randn(5, 4), history, torch.arange(7) < torch.tensor([[0], [1], [3], [7], [7]]))
        assert logits.shape == (5,)
        logits.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_means_are_apart_by_their_standard_error() -> None:
    runs = [
        {"data": "flights", "model": "wdl", "side": side, "seed": seed, "auc": auc, "normalised_entropy": 1.0}
        for side, values in (("esd", (0.6, 0.7, 0.8)), ("torch", (0.5, 0.6, 0.7)))
        for seed, auc in enumerate(values)
    ]
    row = compared(runs, "flights", "wdl", 3)
    assert row["auc"]["esd"] == pytest.approx({"mean": 0.7, "spread": 0.1})
    assert row["auc"]["t"] == pytest.approx(0.1 / math.sqrt(2 * 0.01 / 3))
    assert math.isnan(row["normalised_entropy"]["t"])


def test_a_cluster_is_judged_at_every_evaluation_and_in_the_end() -> None:
    samples, told = made.load("flights", dense.BATCH, 6), {}
    options = replace(dense.OPTIONS, dim=8, hidden="8", evaluate_every=4)
    cluster.train(samples, options, [3, 4], lambda seed, evaluations: told.update({seed: list(evaluations)}))
    assert list(told) == [3, 4]
    assert all([each.iteration for each in evaluations] == [4, 6] for evaluations in told.values())
    (first, last), (other, _) = told.values()
    assert first.quality.auc != last.quality.auc != other.quality.auc


def test_a_way_to_sum_is_judged_with_each_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["dense", "--data", "flights", "--iterations", "6", "--seeds", "2"])
    dense.main()
    found = json.loads(capsys.readouterr().out)
    assert found["iterations"] == 6
    exact, factors = found["auc"]["server"], found["auc"]["low-rank:8"]
    assert 0.4 < exact["mean"] < 0.7
    assert 0 < abs(exact["mean"] - factors["mean"]) < 0.1
