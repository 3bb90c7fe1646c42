"""A run that is killed in one of its processes, and what it shares with the run that nobody disturbed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from esd.cli.launcher import LocalCluster, ServiceProcess
from esd.cli.options import RunOptions
from services.domain.state import JobState
from services.domain.tables import OptimizerKind
from tests.support.models import assert_same_model

OPTIONS = RunOptions(
    workers=2,
    links="20m,10m",  # slow enough that a kill between two checkpoints hits the time between them
    batch=30,
    dim=8,
    cache_rows=600,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.002,
    iterations=60,
    seed=3,
    checkpoint_every=25,
)
KILLED_AT = 38  # halfway between two checkpoints: the first is written by then, the second is not cut


class Killer:
    """Kills one process when this number of iterations is confirmed."""

    def __init__(self, choose: Callable[[LocalCluster], ServiceProcess], iteration: int) -> None:
        self._choose = choose
        self._iteration = iteration
        self.killed: str | None = None

    def __call__(self, cluster: LocalCluster, state: JobState) -> None:
        if self.killed is None and state.iterations_confirmed >= self._iteration:
            service = self._choose(cluster)
            self.killed = service.name
            service.process.send_signal(signal.SIGKILL)


def worker(cluster: LocalCluster) -> ServiceProcess:
    return cluster.workers[1]


def dispatcher(cluster: LocalCluster) -> ServiceProcess:
    return cluster.dispatcher


def parameter_server(cluster: LocalCluster) -> ServiceProcess:
    return cluster.parameter_servers[-1]


def assert_same_run(result: dict, path: Path, undisturbed: tuple[Path, dict]) -> None:
    """The model bit by bit; every sample counted once; the figures of the dispatch as if nothing had been redone."""
    expected_path, expected = undisturbed
    for figure in ("iterations", "samples", "loss", "auc", "operations", "cost_seconds", "hit_ratio"):
        assert result[figure] == expected[figure], figure
    assert_same_model(path, expected_path)
