"""Models of graphs: every cluster trains, with negatives that samples share, the model of one process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from esd.run.options import RunOptions
from esd.run.prepare import prepare
from esd.run.simulation import simulate_run
from esd.run.stream import global_batches
from esd.services.domain.losses import Loss
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.graphs import train_graph, write_graph
from tests.support.models import distance

BATCH = 64
BASE = RunOptions(
    batch=BATCH,
    workers=1,
    links="1g",
    dim=8,
    cache_rows=110,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.5,
    seed=3,
    epochs=2,
    shuffle=200,
    loss=Loss.OWN,
)


@dataclass(frozen=True)
class Cluster:
    """A way to train 1,400 triples, in batches of 64, the last one shorter."""

    name: str
    model: str
    workers: int
    options: str = "negatives=20&chunk=24"
    changes: tuple[tuple[str, object], ...] = ()


CLUSTERS = [
    Cluster("one worker", "complex", 1),
    Cluster("two workers", "complex", 2, changes=(("mechanism", "esd"),)),
    Cluster("four workers, caches that evict", "complex", 4, changes=(("cache_rows", 70),)),
    Cluster("four workers, one list for all", "complex", 4, "negatives=20"),
    Cluster("two workers, pushes ahead", "distmult", 2, changes=(("sync", "proactive"),)),
    Cluster("three workers, replicated rows", "simple", 3, changes=(("sync", "replicated:25"),)),
    Cluster("two workers, unequal workloads", "transe", 2, changes=(("batch", None), ("workloads", "50,14"))),
    Cluster("a worker without samples", "complex", 3, changes=(("batch", None), ("workloads", "40,0,24"))),
    Cluster("two workers, relations of another dimension", "rotate", 2, "negatives=20&relation-dim=4"),
]


def chosen(case: Cluster, graph: Path) -> RunOptions:
    options = replace(BASE, data=f"graph:{graph}?{case.options}", model=case.model, workers=case.workers)
    return replace(options, **{"batch": BATCH // case.workers} | dict(case.changes))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph"))


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_a_graph_as_one_process_does(case: Cluster, graph: Path, tmp_path: Path) -> None:
    options = chosen(case, graph)
    result = training.run(options, store="memory", out=tmp_path)
    run = prepare(options)
    size = run.job.batch_size
    expected = train_graph(run.job, global_batches(run.stream, size))
    with np.load(tmp_path / "model.npz") as model:
        for name, rows in expected.items():
            ids = model[f"{name}/ids"] % np.uint64(2**56)
            assert distance(model[f"{name}/rows"], rows[ids]) < 1e-4, name
        assert len(model[f"{run.job.table.name}/ids"]) == len(next(iter(expected.values())))
    assert result["iterations"] == -(-1400 // size)
    if options.sync != "proactive":  # which pushes as many rows ahead as measured times allow
        assert result["operations"] == simulate_run(options)["operations"]
