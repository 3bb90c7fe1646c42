"""Files with lists, two labels, weights and groups: the model of one process, whatever the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from esd.cli import simulate, train
from esd.cli.options import RunOptions
from esd.cli.stream import first_samples, global_batches
from services.domain.tables import OptimizerKind
from tests.support.models import assert_trained
from tests.support.reference import train_reference

ITERATIONS, BATCH = 30, 32

SCHEMA = """
label = ["clicked", "bought"]
weight = "importance"
group = "user"
dense = ["price"]
ids = [
    "user",
    {{ column = "tags", max = 4, pool = "mean" }},
    {{ column = "shops", max = 3, pool = "sum", longer = "cut" }},
    {{ column = "item"{item} }},
    {{ column = "seen", max = 5, pool = "list"{item} }},
]
{tables}
"""
ONE_TABLE = SCHEMA.format(item="", tables="")
SHARED = SCHEMA.format(item=', table = "item"', tables='[tables.item]\ndim = 3\noptimizer = "sgd"')


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


def lists(rng: np.random.Generator, rows: int, values: int, longest: int) -> list[list[int] | None]:
    """Skewed lists, some of them empty or absent, some with repeats."""
    lengths = rng.integers(0, longest + 1, rows)
    made: list[list[int] | None] = [(values * rng.random(n) ** 2).astype(int).tolist() for n in lengths]
    made[3] = None
    return made


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 30 batches together, whose columns fit both schemas."""
    rng, rows = np.random.default_rng(8), ITERATIONS * BATCH
    table = pa.table(
        {
            "user": (200 * rng.random(rows) ** 2).astype(int),
            "tags": pa.array(lists(rng, rows, 60, 4), pa.list_(pa.int64())),
            "shops": ["|".join(map(str, each or [])) for each in lists(rng, rows, 30, 5)],
            "item": (150 * rng.random(rows) ** 2).astype(int),
            "seen": pa.array(lists(rng, rows, 150, 5), pa.list_(pa.int64())),
            "price": rng.normal(size=rows),
            "importance": rng.choice([0.0, 0.5, 1.0, 3.0], rows),
            "clicked": rng.random(rows) < 0.3,
            "bought": rng.random(rows) < 0.1,
        }
    )
    folder = tmp_path_factory.mktemp("events")
    for part in range(3):
        pyarrow.parquet.write_table(table.slice(part * rows // 3, rows // 3), folder / f"{part}.parquet")
    return folder


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_lists_as_one_process_does(
    case: Cluster, events: Path, tmp_path: Path, redis_url: str
) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(case.schema)
    options = RunOptions(
        data=str(events), schema=schema, workers=case.workers, batch=BATCH // case.workers, links="1g", dim=6,
        cache_rows=case.cache_rows, model="tests.support.list_model:Net", optimizer=case.optimizer,
        mechanism=case.mechanism, learning_rate=0.01, seed=3, sync=case.sync,
    )  # fmt: skip
    store = redis_url if case.store == "redis" else "memory"
    result = train.run(options, store=store, shards=case.shards, out=tmp_path)
    opened = options.open(1024)
    job = options.job(features=opened.features, dense_features=1, parameter_servers=("none",), labels=opened.labels)
    expected = train_reference(job, global_batches(first_samples(opened, None), BATCH))
    assert result["iterations"] == ITERATIONS
    assert_trained(tmp_path / "model.npz", expected)
    simulated = simulate.run(options, None, None)
    assert result["operations"] == simulated["operations"]
    assert sum(result["operations"]["evict_push"]) > 0
