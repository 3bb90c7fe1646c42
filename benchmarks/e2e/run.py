"""One training run on real services, measured between two iterations."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import sub
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.e2e.bounds import observed
from benchmarks.e2e.places import Place, Services, Wanted, on_this_machine
from benchmarks.e2e.processors import ProcessorTime
from esd.dispatcher.core.feedback import Feedback
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.options import BALANCED, RunOptions
from esd.run.stream import TrainingStream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.reports import LINK_DIRECTIONS, LINK_KINDS, PhaseTimes
from esd.services.domain.state import JobPhase, JobState, WorkerState

SELF = "driver"  # this process reads the samples and sends them


@dataclass(frozen=True, slots=True)
class Window:
    """The progress of a run between two moments, without its start and its last flush.

    Attributes:
        first: iterations that all workers had confirmed at the first moment.
        iterations: iterations that they confirmed between the moments.
        seconds: wall time between the moments.
        processors: processor time by process, `worker-2` or `driver`.
        pulled: int64 [n], bytes that each worker received from the parameter servers.
        pushed: int64 [n], bytes that each worker sent to them, or to other workers.
        direct: int64 [n], bytes that each worker sent to other workers.
        on_links: int64 [n], bytes of all kinds that each worker's link carried in the direction that had more of them.
        phases: time of each worker by phase.
        decision_seconds: median time of a decision, over the whole run.
        auc: AUC over the whole run, where each sample is scored before it is trained.
        feedback: measurements that the decisions of the run used, by iteration; none if they used none.
    """

    first: int
    iterations: int
    seconds: float
    processors: Mapping[str, ProcessorTime]
    pulled: NDArray[np.int64]
    pushed: NDArray[np.int64]
    direct: NDArray[np.int64]
    on_links: NDArray[np.int64]
    phases: tuple[PhaseTimes, ...]
    decision_seconds: float
    auc: float
    feedback: Mapping[int, Feedback]


@dataclass(frozen=True, slots=True)
class _Look:
    """The services at one moment."""

    state: JobState
    at: float
    processors: Mapping[str, ProcessorTime]

    @classmethod
    def at_services(cls, services: Services, state: JobState) -> _Look:
        """Reads the state of the services now. Raises ProcessLookupError if a service has ended."""
        pids = {**services.processes, SELF: os.getpid()}
        return cls(state, time.perf_counter(), {name: ProcessorTime.of(pid) for name, pid in pids.items()})

    @property
    def workers(self) -> list[WorkerState]:
        return sorted(self.state.workers, key=lambda worker: worker.slot)

    def bytes(self, direction: str) -> NDArray[np.int64]:
        return np.array([getattr(worker.transfers, f"bytes_{direction}") for worker in self.workers], np.int64)

    def on_links(self) -> NDArray[np.int64]:
        """Returns the bytes on each link by direction, [2, n]."""
        return np.array(
            [
                [sum(worker.transfers.on_link(kind, way) for kind in LINK_KINDS) for worker in self.workers]
                for way in LINK_DIRECTIONS
            ],
            np.int64,
        )


async def measure(
    chosen: RunOptions,
    stream: TrainingStream,
    cache_rows: int,
    warm_up: int,
    shards: int = 1,
    place: Place = on_this_machine,
) -> Window:
    """Trains once.

    Args:
        chosen: the options, with a number of iterations.
        stream: all samples of the run.
        cache_rows: of each worker.
        warm_up: iterations that are over before the first moment.
        shards: parameter servers.
        place: where the services run.

    Raises:
        RuntimeError: the run was over too soon to see two moments of it.
    """
    looks: list[_Look] = []
    feedback: Mapping[int, Feedback] = {}
    with tempfile.TemporaryDirectory(prefix="esd-e2e-") as folder:
        logs = Path(folder)
        decisions = logs / "decisions" if chosen.workloads == BALANCED else None  # a log takes processor time
        async with (
            place(Wanted(chosen, cache_rows, shards, logs, decisions)) as services,
            AsyncDispatcherClient(services.dispatcher) as client,
        ):
            job = chosen.job(
                features=stream.dataset.features,
                dense_features=stream.dataset.dense_features,
                parameter_servers=services.parameter_servers,
            )

            def look(state: JobState) -> None:
                if state.phase is JobPhase.RUNNING and warm_up <= state.iterations_confirmed < (chosen.iterations or 0):
                    with suppress(ProcessLookupError):  # the job was over, and its workers were, before the answer came
                        looks[1:] = [_Look.at_services(services, state)]

            await services.see_through(drive(client, job, stream, on_progress(look)))
        if decisions is not None:
            feedback = observed(decisions)
    if len(looks) < 2:
        raise RuntimeError(f"{chosen.iterations} iterations were over too soon: give more --iterations")
    return _between(looks[0], looks[1], feedback)


def _between(first: _Look, last: _Look, feedback: Mapping[int, Feedback]) -> Window:
    return Window(
        first=first.state.iterations_confirmed,
        iterations=last.state.iterations_confirmed - first.state.iterations_confirmed,
        seconds=last.at - first.at,
        processors={name: time - first.processors[name] for name, time in last.processors.items()},
        pulled=last.bytes("pulled") - first.bytes("pulled"),
        pushed=last.bytes("pushed") - first.bytes("pushed"),
        direct=last.bytes("direct") - first.bytes("direct"),
        on_links=(last.on_links() - first.on_links()).max(axis=0),
        phases=tuple(
            PhaseTimes(*map(sub, after.phases, before.phases))
            for before, after in zip(first.workers, last.workers, strict=True)
        ),
        decision_seconds=last.state.decision_median_seconds,
        auc=last.state.quality.auc,
        feedback=feedback,
    )
