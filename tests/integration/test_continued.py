"""A job that goes on from the model of another one ends with the model of one process that trains both streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.run.options import RunOptions
from esd.run.stream import first_samples, global_batches
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.schedules import Decay, Schedule
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.models import model_arrays
from tests.support.reference import train_reference

FIRST = RunOptions(
    data="synthetic:criteo?samples=3000",
    workers=2,
    links="1g",
    batch=32,
    dim=8,
    cache_rows=2000,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.004,
    iterations=20,
    seed=3,
)
# Other samples, at half the rate, on another number of workers, whose gradients are summed in another way.
OTHERS = {"data": "synthetic:criteo?samples=2000", "workers": 4, "batch": 16, "dense_sum": "server"}
SECOND = replace(FIRST, learning_rate=0.002, **OTHERS)


def stores(redis_url: str, tmp_path: Path) -> dict[str, dict]:
    return {"redis": {"store": redis_url}, "directory": {"store": "memory", "checkpoint_dir": tmp_path / "kept"}}


@pytest.mark.parametrize("kind", ["redis", "directory"])
def test_two_runs_train_what_one_process_trains(kind: str, redis_url: str, tmp_path: Path) -> None:
    store = stores(redis_url, tmp_path)[kind]
    training.run(FIRST, shards=2, out=None, table="model", **store)
    result = training.run(SECOND, shards=2, out=tmp_path, continue_from="model", **store)
    assert (result["iterations"], result["samples"]) == (20, 1280)

    batches = [
        batch for options in (FIRST, SECOND) for batch in global_batches(first_samples(options.open(1024), 20 * 64), 64)
    ]
    dataset = FIRST.open(1024)
    job = FIRST.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    halved = Schedule(Decay.STEP, 0, 20, 0.5)
    expected = train_reference(replace(job, schedule=halved, dense_schedule=halved), batches)
    model = model_arrays(tmp_path / "model")
    np.testing.assert_array_equal(model["ids"], expected.ids)
    np.testing.assert_array_equal(model["versions"], expected.versions)
    np.testing.assert_allclose(model["rows"], expected.rows, rtol=1e-3, atol=1e-4)
    for name, values in expected.dense.items():
        np.testing.assert_allclose(model[f"dense/{name}"], values, rtol=1e-3, atol=1e-4)

    # What has gone on is not trained twice: it is the finished job now, and another one may go on from it.
    again = training.run(SECOND, shards=2, out=None, continue_from="model", **store)
    assert again["iterations"] == 20
    third = training.run(replace(SECOND, learning_rate=0.001), shards=2, out=None, continue_from="model", **store)
    assert third["iterations"] == 20
    assert third["samples"] == 1280


def test_what_makes_another_model_cannot_go_on(redis_url: str) -> None:
    with pytest.raises(FailedPrecondition, match="holds no checkpoint to continue from"):
        training.run(SECOND, store=redis_url, shards=1, out=None, continue_from="model")
    training.run(replace(FIRST, iterations=2), store=redis_url, shards=1, out=None, table="model")
    with pytest.raises(FailedPrecondition, match="a job that differs in model"):
        training.run(replace(SECOND, model="dcn"), store=redis_url, shards=1, out=None, continue_from="model")


def test_a_continued_run_is_evaluated_and_stops_early_as_a_first_one(tmp_path: Path) -> None:
    """Its first iteration is no multiple of the interval. At a rate of nothing no evaluation gets better."""
    store = {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    training.run(replace(FIRST, iterations=7), shards=1, out=None, table="model", **store)
    judged = replace(FIRST, holdout="0.2", learning_rate=1e-30, evaluate_every=5, early_stop="auc:2", epochs=50)
    options = replace(judged, iterations=None)
    result = training.run(options, shards=1, out=None, continue_from="model", **store)
    assert [each["iteration"] for each in result["evaluations"]][:3] == [7 + 5, 7 + 10, 7 + 15]
    assert result["iterations"] == 15 + 5 + options.horizon, "the stream ends where the fourth evaluation would wait"
