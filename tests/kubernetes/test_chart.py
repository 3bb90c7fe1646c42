"""ESD trains on a real Kubernetes: its model is the undisturbed one though pods are killed and the release changes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from esd.cli.demo import DEMO
from esd.run.options import RunOptions
from esd.run.stream import global_batches, training_stream
from esd.services.domain.tables import OptimizerKind
from tests.e2e.compose import wait_until
from tests.kubernetes.release import NAME, Release
from tests.support.models import distance, model_arrays
from tests.support.reference import TrainedModel, train_reference

FIRST_ITERATION_SECONDS = 180
TRAINED: RunOptions = replace(
    DEMO,
    data="synthetic:criteo",
    links="500m,500m",
    workers=2,
    batch=48,
    dim=8,
    hidden="16",
    dense_sum="server",
    iterations=1500,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
    checkpoint_every=50,
)

pytestmark = pytest.mark.timeout(1200)


def values(*, workers: int = 2, tag: str = "e2e") -> dict[str, Any]:
    """The run with its global batch divided among the workers."""
    arguments = {
        "--data": TRAINED.data, "--model": TRAINED.model, "--batch": TRAINED.batch * TRAINED.workers // workers,
        "--dim": TRAINED.dim, "--hidden": TRAINED.hidden, "--dense": TRAINED.dense_sum,
        "--optimizer": TRAINED.optimizer.value, "--lr": TRAINED.learning_rate, "--iterations": TRAINED.iterations,
        "--checkpoint-every": TRAINED.checkpoint_every, "--seed": TRAINED.seed,
    }  # fmt: skip
    return {
        "image": {"tag": tag, "pullPolicy": "Never"},
        "pod": {"resources": {"requests": {"memory": "128Mi"}}},
        "workers": {"list": [{"name": f"edge-{number}"} for number in range(1, workers + 1)]},
        "driver": {"arguments": [str(part) for pair in arguments.items() for part in pair]},
    }


@cache
def expected() -> TrainedModel:
    stream = training_stream(TRAINED)
    job = TRAINED.job(
        features=stream.dataset.features, dense_features=stream.dataset.dense_features, parameter_servers=("none",)
    )
    return train_reference(job, global_batches(stream, job.batch_size))


def assert_undisturbed(release: Release) -> None:
    assert release.result(600)["iterations"] == TRAINED.iterations
    model = model_arrays(release.volume("esd-models") / "model")
    assert np.array_equal(model["ids"], expected().ids)
    assert (model["versions"] <= expected().versions).all()  # they count from when a row was last new to all caches
    assert distance(model["rows"], expected().rows) < 1e-5
    for name, parameter in expected().dense.items():
        assert distance(model[f"dense/{name}"], parameter) < 1e-5


def trained_some(release: Release, iterations: int) -> None:
    wait_until(lambda: release.iterations() >= iterations, 300)


def test_killed_pods(release: Release) -> None:
    """Each service is killed while the job runs: a worker, its parameter server, the dispatcher and the driver."""
    started = time.monotonic()
    release.install(values())
    trained_some(release, 1)
    assert time.monotonic() - started < FIRST_ITERATION_SECONDS
    before = 0
    for component in ("worker", "ps_server", "dispatcher", "driver"):
        trained_some(release, before + 100)
        before = release.iterations()
        chosen = f"app.kubernetes.io/component={component}"
        first, *_ = release.items("pods", "--selector", chosen)
        release.kubectl("delete", "pod", first["metadata"]["name"], "--force", "--grace-period=0")
    assert_undisturbed(release)


def test_an_upgrade_with_another_worker(release: Release) -> None:
    release.install(values())
    trained_some(release, 100)
    release.upgrade(values(workers=3, tag="next"))
    assert_undisturbed(release)
    images = {each["spec"]["containers"][0]["image"] for each in release.items("pods")}
    assert images == {"esd-service:next", "esd-worker:next"}
    assert len(release.items("deployments", "--selector", "app.kubernetes.io/component=worker")) == 3

    release.helm.rollback(NAME, version=1)
    workers = release.items("deployments", "--selector", "app.kubernetes.io/component=worker")
    assert [each["metadata"]["name"] for each in workers] == ["esd-worker-edge-1", "esd-worker-edge-2"]
    assert_undisturbed(release)

    release.helm.uninstall(NAME)
    wait_until(lambda: not release.items("pods"), 120)
    left = release.kubectl("get", "all,configmaps,networkpolicies,poddisruptionbudgets,pvc", "--output", "name").split()
    kept = {"persistentvolumeclaim/checkpoints-esd-ps-0", "persistentvolumeclaim/esd-models"}
    assert set(left) - {"configmap/kube-root-ca.crt"} == kept
