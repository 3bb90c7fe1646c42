"""Models of graphs: every cluster trains, with negatives that samples share, the model of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from esd.data.opening import open_data
from esd.run.options import RunOptions
from esd.run.prepare import prepare
from esd.run.simulation import simulate_run
from esd.run.stream import global_batches
from esd.services.domain.losses import Loss
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.graphs import SCORES, train_graph, write_graph
from tests.support.models import distance, model_arrays

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


LIMITED = "negatives=20&chunk=24&entity-norm=0.6"  # the first rows have norms of up to 1, about 0.58


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
    Cluster("one worker, a limit of norms", "transe", 1, LIMITED),
    Cluster("two workers, a limit of norms and rows sent as gradients", "transe", 2, LIMITED, (("direct", True),)),
    Cluster("four workers, a limit of norms, caches that evict", "transe", 4, LIMITED, (("cache_rows", 70),)),
    Cluster("three workers, a limit of norms of replicated rows", "transe", 3, LIMITED, (("sync", "replicated:25"),)),
    Cluster("two workers, relations of another dimension", "rotate", 2, "negatives=20&relation-dim=4"),
]


def chosen(case: Cluster, graph: Path) -> RunOptions:
    options = replace(BASE, data=f"graph:{graph}?{case.options}", model=case.model, workers=case.workers)
    return replace(options, **{"batch": BATCH // case.workers} | dict(case.changes))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph"))


def assert_ranks(found: Mapping[str, Any], rows: Sequence[NDArray[np.float32]], model: str, graph: Path) -> None:
    """Ranks every held-out triple among all others, one by one."""
    dataset = open_data(f"graph:{graph}?part=valid", 1024, seed=0)
    known = {tuple(triple) for triple in (dataset.known % np.uint64(2**56)).tolist()}
    held_out = np.concatenate([batch.by_field for batch in dataset]) % np.uint64(2**56)
    entities, relations = (torch.from_numpy(each) for each in rows)
    count, ranks = len(entities), []
    for h, r, t in held_out.tolist():
        of_tails = [(h, r, other) for other in range(count)]
        of_heads = [(other, r, t) for other in range(count)]
        for triples in (of_tails, of_heads):
            at = torch.tensor(triples)
            scores = SCORES[model](entities[at[:, 0]], relations[at[:, 1]], entities[at[:, 2]]).tolist()
            own = scores[triples.index((h, r, t))]
            others = [s for s, each in zip(scores, triples, strict=True) if each not in known]
            ranks.append(1 + sum(s > own for s in others))
    reciprocal = [1 / rank for rank in ranks]
    assert found["mrr"] == pytest.approx(sum(reciprocal) / len(ranks), rel=1e-3)
    for most in (1, 3, 10):
        assert found[f"hits_at_{most}"] == pytest.approx(sum(rank <= most for rank in ranks) / len(ranks), abs=0.005)


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_held_out_links_are_ranked_among_all_that_are_not_known(model: str, graph: Path, tmp_path: Path) -> None:
    """At a checkpoint within the run and at the end; the run stops when the rank does not get better."""
    case = Cluster("", model, 2, "negatives=30")
    options = replace(
        chosen(case, graph),
        evaluate=f"graph:{graph}?part=valid",
        evaluate_every=10,
        early_stop="mrr:1",
        epochs=40,
        learning_rate=1e-6,
    )
    result = training.run(options, store="memory", out=tmp_path)
    job = prepare(options).job
    trained = model_arrays(tmp_path / "model")
    rows = [trained[f"{table.name}/rows"] for table in job.tables]
    assert_ranks(result["held_out"], rows, model, graph)
    assert result["iterations"] < 437  # of all epochs
    assert result["evaluations"][0].keys() >= {"mrr", "hits_at_1", "hits_at_3", "hits_at_10"}


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_a_graph_as_one_process_does(case: Cluster, graph: Path, tmp_path: Path) -> None:
    options = chosen(case, graph)
    result = training.run(options, store="memory", out=tmp_path)
    run = prepare(options)
    size = run.job.batch_size
    expected = train_graph(run.job, global_batches(run.stream, size))
    model = model_arrays(tmp_path / "model")
    for name, rows in expected.items():
        ids = model[f"{name}/ids"] % np.uint64(2**56)
        assert distance(model[f"{name}/rows"], rows[ids]) < 1e-4, name
    if case.options == LIMITED:
        norms = [np.linalg.norm(model[f"{table.name}/rows"], axis=1).max() for table in run.job.tables]
        assert norms[0] <= 0.6 * (1 + 1e-6) < norms[1]  # of entities, and of relations
    assert len(model[f"{run.job.table.name}/ids"]) == len(next(iter(expected.values())))
    assert result["iterations"] == -(-1400 // size)
    if options.sync != "proactive":  # which pushes as many rows ahead as measured times allow
        assert result["operations"] == simulate_run(options)["operations"]
