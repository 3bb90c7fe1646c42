"""A run with one killed process, and its common part with the undisturbed run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.core.sync.flush_ahead import LOOKAHEAD
from esd.run import prepare
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.services import ServiceProcess
from esd.run.stream import OpenData, TrainingStream, training_stream
from esd.services.domain.batches import SampleBatch
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from tests.support import training
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
KILLED_AT = 38  # halfway between two checkpoints
AHEAD = 8  # iterations whose samples come before something happens: the next checkpoint is not cut by then
PATIENCE_SECONDS = 240


class Interruption:
    """Does something once, when this number of iterations is confirmed and there is a checkpoint."""

    def __init__(self, what: Callable[[LocalServices], object], iteration: int = KILLED_AT) -> None:
        self._what = what
        self.iteration = iteration
        self.over = threading.Event()

    def __call__(self, cluster: LocalServices, state: JobState) -> None:
        if not self.over.is_set() and state.iterations_confirmed >= self.iteration and state.checkpoint > 0:
            self._what(cluster)
            self.over.set()


class Killer(Interruption):
    """Kills one process."""

    def __init__(self, choose: Callable[[LocalServices], ServiceProcess], iteration: int = KILLED_AT) -> None:
        super().__init__(self._kill, iteration)
        self._choose = choose
        self.killed: str | None = None

    def _kill(self, cluster: LocalServices) -> None:
        service = self._choose(cluster)
        self.killed = service.name
        service.process.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class HeldBack(TrainingStream):
    """Samples of which only the first `ahead` come before the interruption is over."""

    ahead: int = 0
    interruption: Interruption | None = None

    def __iter__(self) -> Iterator[SampleBatch]:
        left = self.ahead
        for batch in TrainingStream.__iter__(self):
            if left > 0:
                yield batch[:left]
            if left <= len(batch):
                assert self.interruption is not None
                assert self.interruption.over.wait(PATIENCE_SECONDS)
            if left < len(batch):
                yield batch[max(0, left) :]
            left -= len(batch)


def interrupted_run(options: RunOptions, interruption: Interruption, **where: Any) -> dict[str, Any]:
    """Trains as `training.run` does, with an interruption at the right moment, however late the run is polled."""

    def held_back(chosen: RunOptions, opened: OpenData | None) -> TrainingStream:
        stream = training_stream(chosen, opened)
        looked_at = LOOKAHEAD if options.sync == "proactive" else 0  # of the batches behind the one that is planned
        ahead = (interruption.iteration + AHEAD + looked_at) * stream.batch_size
        return HeldBack(
            stream.dataset,
            stream.limit,
            stream.batch_size,
            stream.whole,
            stream.held_back,
            ahead=ahead,
            interruption=interruption,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "training_stream", held_back)
        return training.run(options, watch=interruption, **where)


def worker(cluster: LocalServices) -> ServiceProcess:
    return cluster.workers[1]


def dispatcher(cluster: LocalServices) -> ServiceProcess:
    return cluster.dispatcher


def parameter_server(cluster: LocalServices) -> ServiceProcess:
    return cluster.parameter_servers[-1]


def assert_same_run(result: dict, path: Path, undisturbed: tuple[Path, dict]) -> None:
    """The model bit by bit; every sample counted once; the figures of the dispatch as if nothing had been redone."""
    expected_path, expected = undisturbed
    for figure in ("iterations", "samples", "loss", "auc", "operations", "cost_seconds", "hit_ratio"):
        assert result[figure] == expected[figure], figure
    assert_same_model(path, expected_path)
