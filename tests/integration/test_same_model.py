"""The model is a function of the stream and the seed, not of the cluster; and the operations are as simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, RowLimitPolicy
from esd.services.domain.tables import OptimizerKind
from testbed.auc import exact_auc
from tests.support import training
from tests.support.models import assert_same_model, assert_trained, distance, model_arrays
from tests.support.reference import train_in_other_orders, train_reference

BASE = RunOptions(
    workers=2,
    links="1g",
    batch=32,
    dim=8,
    cache_rows=700,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
    iterations=45,
    seed=3,
)


@dataclass(frozen=True)
class Cluster:
    """One way to train the same stream of 45 batches of 64 samples."""

    name: str
    options: RunOptions
    store: str = "memory"
    shards: int = 1


def cluster(name: str, *, store: str = "memory", shards: int = 1, **changes) -> Cluster:
    return Cluster(name, replace(BASE, **changes), store, shards)


ADAM = {"optimizer": OptimizerKind.ADAM, "learning_rate": 0.002}
HALF = {"mechanism": "esd", "alpha": 0.5}
UNEQUAL = {"workers": 4, "batch": None, "workloads": "30,20,14,0", "links": "1g,1g,100m,100m"}
ADAGRAD = {"optimizer": OptimizerKind.ROWWISE_ADAGRAD}

# Rates that rise, fall, and differ between rows and dense parameters; gradients that are clipped, weights that decay.
SCHEDULED = {
    "lr_schedule": "warm-up:5,cosine:40:0.1",
    "dense_lr_schedule": "step:15:0.5",
    "dense_learning_rate": 0.003,
    "weight_decay": 0.001,
    "clip": 0.05,
}

# An epoch ends within a batch.
EPOCHS = {"data": "synthetic:zipf?samples=1000&keys=3000", "epochs": 3, "shuffle": 300, "model": "dlrm"}

# A table of few more rows than an iteration trains: most rows leave it, some in the iteration after their last.
FULL = {"max_rows": 700, "at_max_rows": RowLimitPolicy.FORGET, "cache_rows": 500, **ADAM}

# Most rows leave the table within some iterations, and many come back.
TTL = {"row_ttl": 4, "cache_rows": 700, "checkpoint_every": 20}
BOTH = {"row_ttl": 3, "max_rows": 1000}

# Half of the ids come once, and half of the others are admitted while they are in every plan.
ADMIT = {"admit_after": 3, "cache_rows": 700, "checkpoint_every": 20}

SCARCE = {"row_ttl": 3, "max_rows": 500}  # since fewer ids are admitted

PUSHED = {"sync": "full"}
AHEAD = {"sync": "proactive", "links": "40m,20m,10m", "checkpoint_every": 20}
THROUGH = {"sync": "write-through", "mechanism": "random", "cache_rows": 500}
REPLICATED = {"sync": "replicated:150", "checkpoint_every": 20, "iterations": 60}  # the rows are chosen twice
HOT = {
    "data": "synthetic:zipf?samples=3000&fields=3&keys=300&skew=1.6",
    "hot_batches": 20,
    "epochs": 2,
    "model": "dlrm",
}
NEVER_STALE = {"sync": "bounded:0,0", "checkpoint_every": 20}
DIRECT = {"direct": True, "checkpoint_every": 20}
SMALL = {"mechanism": "random", "cache_rows": 500}
AT_SERVER = {"dense_sum": "server"}

# Every value of every axis occurs, and each optimizer meets evictions, split rows and both stores.
CLUSTERS = [
    cluster("two workers, scheduled, ESD", checkpoint_every=20, **SCHEDULED),
    cluster("four workers, scheduled, Adam, Redis", workers=4, batch=16, store="redis", **SCHEDULED | ADAM),
    cluster("two workers, three epochs, shuffled", iterations=40, cache_rows=900, **EPOCHS),
    cluster("one worker, Adam, Redis", workers=1, batch=64, checkpoint_every=25, store="redis", **ADAM),
    cluster("two workers, ESD, checkpoints, Redis", checkpoint_every=20, store="redis"),
    cluster("two workers, LAIA, Adam, LRU, DeepFM", mechanism="laia", model="dfm", policy="lru", **ADAM),
    cluster("two workers, random, Adagrad, LFU, Redis", mechanism="random", policy="lfu", store="redis", **ADAGRAD),
    cluster("four workers, ESD, Adam, Redis, two shards", workers=4, batch=16, store="redis", shards=2, **ADAM),
    cluster("three workers, ESD, Adagrad, DLRM", workers=3, batch=20, model="dlrm", cache_rows=500, **ADAGRAD),
    cluster("unequal, ESD in part by heuristic, DCN, two shards", **HALF, model="dcn", shards=2, **UNEQUAL),
    cluster("four workers, own model with dropout", model="examples.visits.net:Net", **UNEQUAL),
    cluster("four workers, buffers that change", model="tests.support.running_model:Net", **UNEQUAL),
    cluster("one worker, buffers that change", workers=1, batch=64, model="tests.support.running_model:Net"),
    cluster("two workers, full table, Adagrad, checkpoints", checkpoint_every=20, shards=2, **FULL | ADAGRAD),
    cluster("two workers, all pushed, LAIA, Adam, checkpoints", mechanism="laia", checkpoint_every=20, **PUSHED | ADAM),
    cluster("four workers, all pushed, ESD, Redis, two shards", workers=4, batch=16, store="redis", shards=2, **PUSHED),
    cluster("three workers, write-through, random, Adagrad", workers=3, batch=20, policy="lru", **THROUGH | ADAGRAD),
    cluster("three workers, pushed ahead, ESD, Adam", workers=3, batch=20, **AHEAD | ADAM),
    cluster("two workers, full table, write-through, Redis", store="redis", **THROUGH | FULL),
    cluster("three workers, no staleness, ESD, Adam, Redis", workers=3, batch=20, store="redis", **NEVER_STALE | ADAM),
    cluster("four workers, no staleness, random, two shards", workers=4, batch=16, shards=2, **NEVER_STALE | SMALL),
    cluster("two workers, no staleness, full table, Adagrad", policy="lru", **NEVER_STALE | FULL | ADAGRAD),
    cluster("four workers, full table, joint, Redis", workers=4, batch=16, mechanism="joint", store="redis", **FULL),
    cluster("one worker, replicated rows, Adagrad", workers=1, batch=64, **REPLICATED | ADAGRAD),
    cluster("two workers, replicated rows, LAIA, LRU, small caches", mechanism="laia", policy="lru", **REPLICATED),
    cluster("three workers, replicated rows, Adam, Redis", workers=3, batch=20, store="redis", **REPLICATED | ADAM),
    cluster("four workers, replicated rows, unequal, joint", mechanism="joint", shards=2, **REPLICATED | UNEQUAL),
    cluster("two workers, hot batches, two epochs", **HOT | REPLICATED),
    cluster("two workers, full table, replicated rows", store="redis", **FULL | REPLICATED),
    cluster("three workers, directly, ESD, Adam, two shards", workers=3, batch=20, shards=2, **DIRECT | ADAM),
    cluster("four workers, directly, random, Redis", workers=4, batch=16, store="redis", **DIRECT | SMALL),
    cluster("two workers, directly, full table, LAIA, Adagrad", mechanism="laia", **DIRECT | FULL | ADAGRAD),
    cluster("four workers, directly, unequal, LRU", policy="lru", **DIRECT | UNEQUAL),
    cluster("two workers, sums at the server, scheduled", checkpoint_every=20, **AT_SERVER | SCHEDULED),
    cluster("sums at two servers, Redis", workers=3, batch=20, store="redis", shards=2, **AT_SERVER | ADAM),
    cluster("one worker, sums at the server", workers=1, batch=64, **AT_SERVER),
    cluster("sums at two servers, buffers", model="tests.support.running_model:Net", shards=2, **AT_SERVER | UNEQUAL),
    cluster("four workers, sums at the server, own model", model="examples.visits.net:Net", **AT_SERVER | UNEQUAL),
    cluster("sums at two servers, replicated rows", workers=3, batch=20, shards=2, **AT_SERVER | REPLICATED),
    cluster("sums at the server, replicated, unequal", mechanism="joint", **AT_SERVER | REPLICATED | UNEQUAL),
    cluster("two workers, sums at the server, full table", shards=2, checkpoint_every=20, **AT_SERVER | FULL | ADAGRAD),
    cluster("one worker, time to live, SGD", workers=1, batch=64, **TTL),
    cluster("two workers, time to live, SGD, Redis", store="redis", **TTL),
    cluster("four workers, time to live, SGD, two shards", workers=4, batch=16, shards=2, **TTL),
    cluster("two workers, time to live of one iteration, Adam", **TTL | ADAM | {"row_ttl": 1}),
    cluster("two workers, time to live, full table, Adagrad", **FULL | TTL | ADAGRAD | BOTH),
    cluster("two workers, time to live, all pushed, LAIA", mechanism="laia", **TTL | PUSHED),
    cluster("three workers, time to live, pushed ahead", workers=3, batch=20, **AHEAD | TTL),
    cluster("two workers, time to live, write-through, Redis", store="redis", **THROUGH | TTL),
    cluster("two workers, time to live, no caches", sync="none", **TTL),
    cluster("two workers, time to live, no staleness, Adagrad", **NEVER_STALE | TTL | ADAGRAD),
    cluster("three workers, time to live, replicated rows", workers=3, batch=20, **TTL | REPLICATED),
    cluster("three workers, time to live, directly, ESD", workers=3, batch=20, mechanism="esd", **TTL | DIRECT),
    cluster("two workers, time to live, joint that looks ahead", mechanism="joint", horizon=3, **TTL),
    cluster("two workers, time to live, history", mechanism="history", **TTL),
    cluster("two workers, time to live, static caches", policy="static", iterations=120, **TTL),
    cluster("one worker, admission, SGD", workers=1, batch=64, **ADMIT),
    cluster("two workers, admission, SGD, Redis", store="redis", **ADMIT),
    cluster("four workers, admission, Adam, two shards", workers=4, batch=16, shards=2, **ADMIT | ADAM),
    cluster("two workers, admission, full table, time to live, Adagrad", **FULL | TTL | ADAGRAD | ADMIT | SCARCE),
    cluster("two workers, admission, all pushed, LAIA", mechanism="laia", **ADMIT | PUSHED),
    cluster("three workers, admission, pushed ahead", workers=3, batch=20, **AHEAD | ADMIT),
    cluster("two workers, admission, write-through", **THROUGH | ADMIT),
    cluster("two workers, admission, no caches", sync="none", **ADMIT),
    cluster("two workers, admission, no staleness, Adagrad", **NEVER_STALE | ADMIT | ADAGRAD),
    cluster("three workers, admission, replicated rows", workers=3, batch=20, **ADMIT | REPLICATED),
    cluster("three workers, admission, directly, ESD", workers=3, batch=20, mechanism="esd", **ADMIT | DIRECT),
    cluster("two workers, admission, joint that looks ahead", mechanism="joint", horizon=3, **ADMIT),
    cluster("two workers, admission, hash, static caches", mechanism="hash", policy="static", iterations=120, **ADMIT),
]  # fmt: skip


def stream(options: RunOptions):
    size = sum(options.worker_samples())
    return global_batches(first_samples(options.open(1024), options.iterations * size), size)


def job_of(options: RunOptions) -> JobSpec:
    dataset = options.open(1024)
    return options.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: case.name)
def test_a_cluster_trains_the_model_of_one_machine(case: Cluster, tmp_path: Path, redis_url: str) -> None:
    store = redis_url if case.store == "redis" else case.store
    result = training.run(case.options, store=store, shards=case.shards, out=tmp_path)
    job, batches = job_of(case.options), list(stream(case.options))
    expected = train_reference(job, batches)
    tolerance = 1e-3 if case.options.optimizer is OptimizerKind.ADAM else 1e-4
    assert_trained(tmp_path / "model", expected, tolerance, partial(train_in_other_orders, job, batches))
    trained = {name.removeprefix("dense/") for name in model_arrays(tmp_path / "model") if name.startswith("dense/")}
    assert trained == set(expected.dense)

    labels = np.concatenate([batch.labels[:, 0] for batch in batches])
    assert result["auc"] == pytest.approx(exact_auc(expected.scores, labels), abs=1e-3)
    if case.options.sync == "proactive":
        assert 0 < result["flushed_ahead"] <= sum(result["operations"]["update_push"])
        return  # what is pushed ahead depends on how long iterations take
    simulated = simulate_run(case.options)
    assert result["operations"] == simulated["operations"]
    assert result["forgotten_rows"] == simulated["forgotten_rows"]
    assert result["expired_rows"] == simulated["expired_rows"]
    assert (result["forgotten_rows"] > 0) == (case.options.max_rows > 0)
    assert (result["expired_rows"] > 0) == (case.options.row_ttl > 0)
    admission = [result["admitted_rows"], result["initial_reads"]]
    assert admission == [simulated["admitted_rows"], simulated["initial_reads"]]
    if case.options.admit_after > 1:
        assert admission == [expected.admitted, expected.initial_reads]
        assert min(admission) > 100
    else:
        assert admission == [0, 0]
    assert result["hit_ratio"] == simulated["hit_ratio"]
    assert result["cost_seconds"] == pytest.approx(simulated["cost_seconds"])
    assert result["makespan_seconds"] == pytest.approx(simulated["makespan_seconds"])
    assert_bytes_are_those_charged(result, simulated, case)


def assert_bytes_are_those_charged(result: Mapping[str, Any], simulated: Mapping[str, Any], case: Cluster) -> None:
    """The bytes on the links are the charged ones, the pushes of flushes, and a small overhead per message."""
    job = case.options.job(features=numbered_ids(1), dense_features=(), parameter_servers=("any",))
    # Two halves there, and their answers; with whom rows are exchanged directly, too.
    frames = (
        4 * result["iterations"] * case.options.workers * (case.shards + case.options.direct * case.options.workers)
    )
    flushed = sum(result["operations"]["flush_push"])
    sizes = job.table.row_transfer_bytes, job.table.gradient_transfer_bytes
    pulled, pushed = (sum(result["bytes"][way]) for way in ("pulled", "pushed"))
    assert result["initial_pulls"] == simulated["initial_pulls"]
    marks = 5 * sum(result["operations"]["miss_pull"])  # in answers that bring a part of the rows, or mark initial ones
    assert 0 <= pulled - sum(simulated["bytes"]["pulled"]) <= marks + 100 * frames
    assert result["bytes"]["reduced"] == simulated["bytes"]["reduced"]
    assert sum(result["initial_pulls"]) > 0
    assert any(result["bytes"]["reduced"]) == (case.options.workers > 1 and "replicated" in case.options.sync)
    beside = pushed - sum(simulated["bytes"]["pushed"])
    assert result["direct"]["rows"] == simulated["direct"]["rows"]
    assert any(result["direct"]["rows"]) == case.options.direct
    direct = sum(result["direct"]["bytes"]) - sum(simulated["direct"]["bytes"])
    assert 0 <= direct <= 100 * result["iterations"] * case.options.workers**2
    assert flushed * min(sizes) <= beside <= flushed * max(sizes) + 100 * frames


def test_bounds_of_0_give_the_bits_of_pushing_everything(tmp_path: Path) -> None:
    options = replace(BASE, workers=3, batch=20, iterations=30, mechanism="random", checkpoint_every=12, **ADAM)
    for sync in ("full", "none", "bounded:0,0"):
        result = training.run(replace(options, sync=sync), store="memory", shards=2, out=tmp_path / sync)
    assert result["staleness"]["missing_updates"] == 0 < result["staleness"]["reads"][0]
    assert_same_model(tmp_path / "full", tmp_path / "bounded:0,0")
    assert_same_model(tmp_path / "full", tmp_path / "none")


def test_rows_that_go_directly_give_the_bits_of_those_that_do_not(tmp_path: Path) -> None:
    options = replace(BASE, workers=3, batch=20, iterations=30, cache_rows=600, checkpoint_every=12, **ADAM)
    for direct in (False, True):
        result = training.run(replace(options, direct=direct), store="memory", shards=2, out=tmp_path / str(direct))
    assert any(result["direct"]["rows"])
    assert_same_model(tmp_path / "True", tmp_path / "False")


def test_stale_copies_give_the_same_bits_in_every_store(tmp_path: Path, redis_url: str) -> None:
    """The plans decide which copy each sample trains; and the cluster moves the rows that the simulator counts."""
    options = replace(BASE, workers=3, batch=20, cache_rows=600, sync="bounded:8,2", iterations=40, **ADAGRAD)
    for store in ("memory", redis_url):
        result = training.run(options, store=store, shards=2, out=tmp_path / store.partition(":")[0])
    assert_same_model(tmp_path / "memory", tmp_path / "redis")
    simulated = simulate_run(options)
    assert result["staleness"] == simulated["staleness"]
    assert 0 < result["staleness"]["most_missing"] <= 8 + 2 * 2
    assert result["operations"] == simulated["operations"]
    assert_bytes_are_those_charged(result, simulated, Cluster("stale", options, shards=2))


def test_gradients_of_low_rank_train_the_model_of_one_machine_with_the_same_option(tmp_path: Path) -> None:
    """Errors that workers keep are gathered at a checkpoint, where one of four has no samples."""
    alone = replace(BASE, dense_sum="low-rank:4", workers=1, batch=64)
    training.run(alone, store="memory", shards=1, out=tmp_path / "alone")
    training.run(replace(alone, dense_sum="server"), store="memory", shards=1, out=tmp_path / "full")
    unequal = replace(alone, checkpoint_every=20, **UNEQUAL)
    training.run(unequal, store="memory", shards=2, out=tmp_path / "four")
    one, four, full = (model_arrays(tmp_path / name / "model") for name in ("alone", "four", "full"))
    trained = [name for name in one if name == "rows" or name.startswith("dense/")]
    assert max(distance(four[name], one[name]) for name in trained) < 1e-5
    assert max(distance(full[name], one[name]) for name in trained) > 1e-3, "another model than of whole gradients"


@pytest.mark.parametrize("way", ["all-reduce", "server", "low-rank:4"])
def test_the_same_seed_gives_the_same_bits(way: str, tmp_path: Path) -> None:
    options = replace(BASE, workers=3, batch=20, cache_rows=600, links="1g,1g,100m", iterations=30, **ADAM)
    options = replace(options, dense_sum=way)
    for run in ("first", "second"):
        training.run(options, store="memory", shards=2, out=tmp_path / run)
    assert_same_model(tmp_path / "first", tmp_path / "second")
