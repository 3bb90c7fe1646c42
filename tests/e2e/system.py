"""The whole system with shaped links, after the run that `up` starts, and the run that it must equal."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from esd.cli.demo import DEMO
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.stream import global_batches, training_stream
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import Unavailable
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from tests.e2e.compose import Project, docker, inspect, wait_until
from tests.support.reference import TrainedModel, train_reference

# With SGD, since Adagrad's first steps have the same length whatever the gradient: where that is
# rounding noise, two orders of summation take opposite ones (docs/semantics.md, "Optimizers").
# Links are slow enough to set the pace on a busy machine with two cores, which all containers share.
TRAINED: RunOptions = replace(
    DEMO,
    links="50m,50m,5m,5m",
    dim=128,
    hidden="16",
    dense_sum="all-reduce",
    iterations=120,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
)
LINKS = TRAINED.links
FIRST_ITERATION_SECONDS = 110


def train_options(mechanism: str) -> str:
    """The driver's options for the run above under a mechanism."""
    return (
        f"--data {TRAINED.data} --model {TRAINED.model} --batch {TRAINED.batch} --dim {TRAINED.dim}"
        f" --hidden {TRAINED.hidden} --dense {TRAINED.dense_sum}"
        f" --optimizer {TRAINED.optimizer.value} --lr {TRAINED.learning_rate} --iterations {TRAINED.iterations}"
        f" --mechanism {mechanism}"
    )


@cache
def cache_rows() -> int:
    """Rows of a worker's cache."""
    return TRAINED.cache_size(TRAINED.open(1024)).rows


@dataclass(frozen=True)
class System:
    """A running system whose first run is over.

    Attributes:
        project: its containers.
        first_iteration_seconds: from `up` to the first iteration that all workers had trained.
        result: the result that the driver printed.
        model: the model file of the driver.
    """

    project: Project
    first_iteration_seconds: float
    result: dict[str, Any]
    model: Path

    @classmethod
    def start(cls, project: Project, directory: Path) -> System:
        """Brings everything up and waits for the end of the driver."""
        started = time.monotonic()
        project.must("up", "--detach", timeout=240)
        dispatcher = project.address("dispatcher", 50051)
        wait_until(lambda: iterations(dispatcher) > 0, 240)
        first_iteration = time.monotonic() - started
        assert project.exit_of("driver", timeout=400) == 0, project.logs()
        _await_workers(project, runs=1)
        docker("cp", f"{project.containers('driver')[0]}:/out/model", str(directory))
        return cls(project, first_iteration, project.result(project.logs("driver")), directory / "model")

    def train(self, mechanism: str) -> dict[str, Any]:
        """Another run on the same services, and its result, when the workers are back for the next."""
        runs = 1 + min(inspect(container)["RestartCount"] for container in self.project.containers("worker"))
        output = self.project.must(
            "run", "--rm", "-T", "--no-deps", "driver", "esd", "train", "--dispatcher", "dispatcher:50051",
            "--parameter-servers", "ps_server:50052", "--workers", str(TRAINED.workers), "--json",
            *train_options(mechanism).split(),
        )  # fmt: skip
        _await_workers(self.project, runs)
        return self.project.result(output)

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """The answer of Prometheus: values by the values of the labels, in the order of the labels' names."""
        address = self.project.address("prometheus", 9090)
        parameters = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{parameters}", timeout=60) as answer:
            series = json.load(answer)["data"]["result"]
        return {
            tuple(value for _, value in sorted(entry["metric"].items())): float(entry["value"][1]) for entry in series
        }

    def describe(self) -> JobState | None:
        """The dispatcher's own account."""
        return _describe(self.project.address("dispatcher", 50051))


def expected_operations() -> dict[str, list[int]]:
    """By kind and worker, as simulated."""
    return simulate_run(replace(TRAINED, cache_rows=cache_rows(), cache_ratio=None), None, None)["operations"]


def expected_model() -> TrainedModel:
    """As one process trains it."""
    stream = training_stream(TRAINED)
    job = TRAINED.job(
        features=stream.dataset.features,
        dense_features=stream.dataset.dense_features,
        parameter_servers=("none",),
    )
    return train_reference(job, global_batches(stream, job.batch_size))


def _await_workers(project: Project, runs: int) -> None:
    """Returns when all workers have left the last of so many jobs and are back for the next."""
    for container in project.containers("worker"):
        wait_until(lambda c=container: inspect(c)["RestartCount"] >= runs, 180)
        wait_until(lambda c=container: inspect(c)["State"]["Health"]["Status"] == "healthy", 180)


def iterations(dispatcher: str) -> int:
    """How many iterations all workers have trained."""
    try:
        state = _describe(dispatcher)
    except Unavailable:  # its port is open before it serves
        return 0
    return 0 if state is None else state.iterations_confirmed


def _describe(dispatcher: str) -> JobState | None:
    with DispatcherClient(dispatcher) as client:
        return client.describe()
