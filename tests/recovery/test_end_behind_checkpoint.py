"""The stream ends right behind a checkpoint that was taken while it paused: nothing is left to be trained or stored."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, global_batches, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobState
from tests.recovery.kills import OPTIONS
from tests.support.models import assert_trained
from tests.support.reference import train_reference

ITERATIONS = 40


@pytest.mark.parametrize("deaths", [0, 1], ids=["nobody", "a worker"])
def test_the_end_comes_whoever_has_died_behind_the_checkpoint(tmp_path: Path, deaths: int) -> None:
    options = replace(OPTIONS, iterations=ITERATIONS, checkpoint_every=0, checkpoint_seconds=0.5)
    job, state = asyncio.run(_paused(options, deaths, tmp_path))
    assert (state.iterations_confirmed, state.checkpoint, len(state.recoveries)) == (ITERATIONS, ITERATIONS, deaths)
    assert_trained(tmp_path / "model", train_reference(job, global_batches(training_stream(options), job.batch_size)))


@dataclass
class PausesAtTheEnd:
    """All samples of a stream, and then nothing until it may end."""

    stream: TrainingStream
    may_end: threading.Event

    def __iter__(self) -> Iterator[SampleBatch]:
        yield from self.stream
        assert self.may_end.wait(240)


async def _paused(options: RunOptions, deaths: int, folder: Path) -> tuple[JobSpec, JobState]:
    """Trains; when all is covered by a checkpoint, a worker dies, and when it is back, the stream ends."""
    stream, may_end = training_stream(options), threading.Event()
    async with (
        LocalServices(
            shards=2, store="memory", worker_links=options.bandwidths(), cache_rows=[600, 600], logs=folder
        ) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        job = options.job(
            features=stream.dataset.features,
            dense_features=stream.dataset.dense_features,
            parameter_servers=tuple(server.address for server in cluster.parameter_servers),
        )
        killed = 0

        def watch(state: JobState) -> None:
            nonlocal killed
            if state.checkpoint == ITERATIONS and killed < deaths:
                killed += 1
                cluster.workers[1].process.send_signal(signal.SIGKILL)
            elif state.checkpoint == ITERATIONS and len(state.recoveries) == killed:
                may_end.set()

        driving = drive(client, job, PausesAtTheEnd(stream, may_end), on_progress(watch))
        state = await cluster.see_through(driving, restarts=deaths, listener=print)
        await export_model(job, folder / "model", graphs=False)
    return job, state
