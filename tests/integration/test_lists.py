"""Files with lists, two labels, weights and groups: every cluster trains the model of one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.lists import MODEL, ONE_TABLE, SHARED, write_events
from tests.support.models import assert_trained
from tests.support.reference import train_reference

ITERATIONS, BATCH = 30, 32


@dataclass(frozen=True)
class Cluster:
    name: str
    workers: int
    optimizer: OptimizerKind
    mechanism: str
    schema: str = ONE_TABLE
    store: str = "memory"
    shards: int = 1
    cache_rows: int = 130
    sync: str = "on-demand"


CLUSTERS = [
    Cluster("one worker, Adam", 1, OptimizerKind.ADAM, "random", cache_rows=220),
    Cluster("two workers, Adagrad, joint, Redis", 2, OptimizerKind.ROWWISE_ADAGRAD, "joint", store="redis"),
    Cluster("four workers, SGD, ESD, two shards", 4, OptimizerKind.SGD, "esd", shards=2, cache_rows=90),
    Cluster("two workers, a table that lists share, Adam, LAIA", 2, OptimizerKind.ADAM, "laia", SHARED),
    Cluster("four workers, replicated rows, a shared table", 4, OptimizerKind.ADAM, "esd", SHARED, cache_rows=120,
            sync="replicated:25"),
]  # fmt: skip


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 batches, whose columns fit both schemas."""
    folder = tmp_path_factory.mktemp("events")
    write_events(folder, ITERATIONS * BATCH)
    return folder


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_lists_as_one_process_does(
    case: Cluster, events: Path, tmp_path: Path, redis_url: str
) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(case.schema)
    options = RunOptions(
        data=str(events), schema=schema, workers=case.workers, batch=BATCH // case.workers, links="1g", dim=6,
        cache_rows=case.cache_rows, model=MODEL, optimizer=case.optimizer,
        mechanism=case.mechanism, learning_rate=0.01, seed=3, sync=case.sync,
    )  # fmt: skip
    store = redis_url if case.store == "redis" else "memory"
    result = training.run(options, store=store, shards=case.shards, out=tmp_path)
    opened = options.open(1024)
    job = options.job(
        features=opened.features,
        dense_features=opened.dense_features,
        parameter_servers=("none",),
        labels=opened.labels,
    )
    expected = train_reference(job, global_batches(first_samples(opened, None), BATCH))
    assert result["iterations"] == ITERATIONS
    assert_trained(tmp_path / "model", expected)
    simulated = simulate_run(options)
    assert result["operations"] == simulated["operations"]
    assert sum(result["operations"]["evict_push"]) > 0
