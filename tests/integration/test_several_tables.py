"""Jobs over several tables: every cluster trains the model of one process, and moves the tables' rows alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import esd
from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches, held_out_samples, training_stream
from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import table_of
from esd.services.domain.tables import OptimizerKind
from testbed.auc import exact_auc
from tests.support import training
from tests.support.models import assert_trained, model_arrays
from tests.support.reference import train_in_other_orders, train_reference
from tests.support.several_tables import ADAGRAD, ADAM, SGD, TabledOptions

BASE = TabledOptions(
    workers=2,
    links="1g",
    batch=32,
    dim=64,
    cache_rows=300,  # of 64 values; rows of 8 values are many more
    model="dcn",
    optimizer=OptimizerKind.ROWWISE_ADAGRAD,
    iterations=40,
    seed=3,
    specs=((64, ADAGRAD), (8, ADAGRAD)),
)


@dataclass(frozen=True)
class Cluster:
    name: str
    options: TabledOptions
    store: str = "memory"
    shards: int = 1


def cluster(name: str, *, store: str = "memory", shards: int = 1, **changes: Any) -> Cluster:
    return Cluster(name, replace(BASE, **changes), store, shards)


CLUSTERS = [
    cluster("two tables, one worker", workers=1, batch=64, cache_rows=450),
    cluster("two tables, two workers, joint, two shards", shards=2),
    cluster("three optimizers, four workers, ESD, emark-size, Redis", workers=4, batch=16, store="redis",
            mechanism="esd", policy="emark-size", specs=((16, ADAM), (8, SGD), (4, ADAGRAD))),
    cluster("three optimizers, three workers, directly, two shards", workers=3, batch=20, shards=2, direct=True,
            specs=((16, ADAM), (8, SGD), (4, ADAGRAD))),
    cluster("three optimizers, two workers, replicated rows of all tables", sync="replicated:60", iterations=60,
            specs=((16, ADAM), (8, SGD), (4, ADAGRAD))),
    cluster("three optimizers, two workers, rows that live 3 and 7 iterations, and for ever", shards=2, ttls=(3, 0, 7),
            checkpoint_every=20, specs=((16, ADAM), (8, SGD), (4, ADAGRAD))),
    cluster("two workers, ids admitted in the third iteration, at once, and in the second", shards=2,
            afters=(3, 1, 2), checkpoint_every=20, optimizer=OptimizerKind.SGD, specs=((16, SGD), (8, SGD), (4, SGD))),
]  # fmt: skip


def batches(options: TabledOptions):
    size = sum(options.worker_samples())
    return global_batches(first_samples(options.open(1024), options.iterations * size), size)


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_the_tables_of_one_process(case: Cluster, tmp_path: Path, redis_url: str) -> None:
    result = training.run(case.options, store=redis_url if case.store == "redis" else "memory", shards=case.shards,
                       out=tmp_path)  # fmt: skip
    opened = case.options.open(1024)
    job = case.options.job(features=opened.features, dense_features=opened.dense_features, parameter_servers=("none",))
    stream = list(batches(case.options))
    tolerance = 1e-3 if job.table.optimizer.kind is OptimizerKind.ADAM else 1e-4
    in_other_orders = partial(train_in_other_orders, job, stream)
    assert_trained(tmp_path / "model", train_reference(job, stream), tolerance, in_other_orders)

    simulated = simulate_run(case.options)
    assert result["operations"] == simulated["operations"]
    assert result["bytes"]["reduced"] == simulated["bytes"]["reduced"]
    assert any(result["bytes"]["reduced"]) == ("replicated" in case.options.sync)
    assert sum(result["operations"]["evict_push"]) > 0
    assert result["direct"]["rows"] == simulated["direct"]["rows"]
    assert any(result["direct"]["rows"]) == case.options.direct
    assert result["cost_seconds"] == pytest.approx(simulated["cost_seconds"])
    assert_no_byte_too_many(result, simulated, case)


def assert_no_byte_too_many(result: dict[str, Any], simulated: dict[str, Any], case: Cluster) -> None:
    """The bytes on the links are the sizes of the rows, flushes included, and a small overhead per message."""
    tables = len(case.options.specs)
    frames = 4 * result["iterations"] * case.options.workers * case.shards * tables
    pulled, pushed = (sum(result["bytes"][way]) for way in ("pulled", "pushed"))
    assert result["initial_pulls"] == simulated["initial_pulls"]
    marks = 5 * sum(result["operations"]["miss_pull"])  # in answers that bring a part of the rows, or mark initial ones
    assert 0 <= pulled - sum(simulated["bytes"]["pulled"]) <= marks + 100 * frames
    flushed = max(spec * 4 * (3 if optimizer is ADAM else 1) + 36 for spec, optimizer in case.options.specs)
    assert (
        0
        <= pushed - sum(simulated["bytes"]["pushed"])
        <= flushed * sum(result["operations"]["flush_push"]) + (100 * frames)
    )


def test_held_out_samples_see_all_tables_and_another_run_goes_on_with_them(tmp_path: Path) -> None:
    first = replace(BASE, iterations=20, holdout="0.01", evaluate_every=20)
    keep: dict[str, Any] = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = training.run(first, out=tmp_path, table="model", **keep)
    held_out = held_out_samples(first, training_stream(first))
    assert held_out is not None
    judged = SampleBatch.concatenate(list(held_out))
    scores = esd.load(tmp_path / "model").scores(judged)[:, 0]
    assert result["held_out"]["auc"] == pytest.approx(exact_auc(scores, judged.labels[:, 0]), abs=1e-3)

    slower = tuple((dimension, replace(optimizer, learning_rate=0.01)) for dimension, optimizer in first.specs)
    training.run(replace(first, specs=slower), out=tmp_path, continue_from="model", **keep)
    trained = [np.unique(batch.ids) for batch in batches(first)] * 2
    ids, versions = np.unique(np.concatenate(trained), return_counts=True)
    model = model_arrays(tmp_path / "model")
    for number, name in enumerate(("model", "model~1")):
        of_table = table_of(ids) == number
        np.testing.assert_array_equal(model[f"{name}/ids"], ids[of_table])
        np.testing.assert_array_equal(model[f"{name}/versions"], versions[of_table])
