"""A job with many more rows than its dispatcher knows: rows that come back are trained on, as on one machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.models import distance, model_arrays
from tests.support.reference import TrainedModel, train_reference

MANY = RunOptions(
    data="synthetic:zipf?keys=250000&fields=26&skew=1.05",  # 120,000 rows, of which 14,000 are released and come back
    workers=2,
    links="1g",
    batch=256,
    dim=4,
    cache_rows=8_000,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.002,
    iterations=20,
    seed=3,
)
WAYS: dict[str, dict[str, Any]] = {
    "on demand": {"mechanism": "joint", "policy": "reuse", "shards": 2},
    "all pushed, Redis": {"sync": "full", "mechanism": "laia", "store": "redis"},
    "no staleness, checkpoints": {"sync": "bounded:0,0", "mechanism": "random", "checkpoint_every": 8},
    "replicated, directly": {"sync": "replicated:200", "optimizer": OptimizerKind.ROWWISE_ADAGRAD, "mechanism": "laia"},
}


@pytest.fixture(scope="module")
def expected() -> dict[OptimizerKind, TrainedModel]:
    """As one process trains it, with either optimizer."""
    models = {}
    for kind in (OptimizerKind.ADAM, OptimizerKind.ROWWISE_ADAGRAD):
        options = replace(MANY, optimizer=kind)
        data = options.open(1024)
        job = options.job(features=data.features, dense_features=data.dense_features, parameter_servers=("none",))
        samples = first_samples(data, options.iterations * job.batch_size)
        models[kind] = train_reference(job, list(global_batches(samples, job.batch_size)))
    return models


@pytest.mark.parametrize("way", WAYS)
def test_a_cluster_trains_the_model_of_one_machine(way, expected, tmp_path: Path, redis_url: str) -> None:
    changes = dict(WAYS[way])
    store = redis_url if changes.pop("store", "memory") == "redis" else "memory"
    shards = changes.pop("shards", 1)
    options = replace(MANY, **changes)
    result = training.run(options, store=store, shards=shards, out=tmp_path)
    trained = expected[options.optimizer]
    model = model_arrays(tmp_path / "model")
    np.testing.assert_array_equal(model["ids"], trained.ids)
    assert distance(model["rows"], trained.rows) < 1e-3
    came_back = model["versions"] < trained.versions
    assert (model["versions"] >= 1).all()
    assert came_back.sum() > 1000
    assert distance(model["rows"][came_back], trained.rows[came_back]) < 1e-3
    assert (model["versions"] <= trained.versions).all()

    simulated = simulate_run(options)
    assert result["operations"] == simulated["operations"]
    beyond = sum(result["bytes"]["pulled"]) - sum(simulated["bytes"]["pulled"])
    assert 0 <= beyond <= 4 * sum(result["operations"]["miss_pull"]) + 400 * result["iterations"] * options.workers
