"""The example with data and a model of one's own, as docs/models.md shows it, is the model of one process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import esd
from esd.run.stream import held_out_samples, training_stream
from esd.services.domain.batches import SampleBatch
from testbed.auc import exact_auc
from tests.support import training
from tests.support.models import assert_trained
from tests.support.visits import copied, model_of_one_process, options_of


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_the_example_is_the_model_of_one_process(
    tmp_path: Path, store: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(tmp_path / "visits", 200)
    monkeypatch.chdir(folder)  # where a user calls the command, and the model is looked for
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the command adds to
    options = options_of(folder, shuffle=300, links="500m,500m,50m,50m", batch=16, dim=8, cache_rows=900)
    result = training.run(options, store=redis_url if store == "redis" else store, shards=2, out=tmp_path / "out")
    assert (result["samples"], result["iterations"]) == (1800, 29)

    expected, batches = model_of_one_process(options)
    assert_trained(tmp_path / "out" / "model", expected)
    labels = np.concatenate([batch.labels[:, 0] for batch in batches])
    assert result["auc"] == pytest.approx(exact_auc(expected.scores, labels), abs=1e-3)
    held_out = held_out_samples(options, training_stream(options))
    assert held_out is not None
    judged = SampleBatch.concatenate(list(held_out))
    scores = esd.load(tmp_path / "out" / "model").scores(judged)
    assert scores.shape == (200, 1)
    assert result["held_out"]["auc"] == pytest.approx(exact_auc(scores[:, 0], judged.labels[:, 0]), abs=1e-3)
    assert 0.5 < result["held_out"]["auc"] < 1
