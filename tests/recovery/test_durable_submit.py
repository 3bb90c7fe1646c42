"""Samples that Submit has acknowledged are trained exactly once, in stream order, after any process is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.results import training_result
from esd.run.stream import training_stream
from esd.run.train import train_attached
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobPhase, JobState
from esd.services.domain.tables import OptimizerKind
from tests.recovery.kills import assert_same_run
from tests.support import training
from tests.support.simple_clients import state_when, stream

OPTIONS = RunOptions(
    data="flights",
    workers=2,
    links="1g,100m",
    batch=16,
    dim=4,
    cache_rows=500,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.002,
    iterations=80,
    seed=5,
    checkpoint_every=20,
)
SAMPLES = OPTIONS.iterations * OPTIONS.workers * OPTIONS.batch
PIECE = 24  # samples of one Submit message: no divisor of a global batch


class ReadOnce:
    """A source that forgets: acknowledged samples are different ones when it is read again."""

    def __init__(self, options: RunOptions) -> None:
        self._stream = training_stream(options)
        self.acknowledged = 0

    def __iter__(self) -> Iterator[SampleBatch]:
        position = 0
        for read in self._stream:
            for start in range(0, len(read), PIECE):
                piece = read[start : start + PIECE]
                forgotten = position + len(piece) <= self.acknowledged
                yield replace(piece, labels=1 - piece.labels) if forgotten else piece
                position += len(piece)


@asynccontextmanager
async def running(
    tmp_path: Path, **store: object
) -> AsyncIterator[tuple[LocalServices, AsyncDispatcherClient, JobSpec]]:
    """A cluster of local processes that are started again when they die."""
    stream = training_stream(OPTIONS)
    async with (
        LocalServices(
            shards=1, worker_links=OPTIONS.bandwidths(), cache_rows=[500] * 2, logs=tmp_path, **store
        ) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        job = OPTIONS.job(
            features=stream.dataset.features,
            dense_features=stream.dataset.dense_features,
            parameter_servers=(cluster.parameter_servers[0].address,),
        )
        care = asyncio.create_task(cluster.supervisor.supervise(5))
        try:
            yield cluster, client, job
        finally:
            care.cancel()
            await asyncio.gather(care, return_exceptions=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(OPTIONS, store="memory", shards=1, out=path)


async def test_acknowledged_samples_need_not_be_sent_again(undisturbed, tmp_path, own_redis):
    """A dispatcher dies before it has trained the samples that it acknowledged, the next one after all is done."""
    source = ReadOnce(OPTIONS)
    async with running(tmp_path, store=own_redis.url) as (cluster, client, job):

        def kill(state: JobState) -> None:
            if not source.acknowledged and state.iterations_confirmed >= 25:
                source.acknowledged = state.samples_submitted
                cluster.dispatcher.process.send_signal(signal.SIGKILL)

        await drive(client, job, source, on_progress(kill))
        assert source.acknowledged > 25 * job.batch_size
        # What checkpoints cover is dropped; the mark of the end is left.
        only = "local log = redis.call('xrange', KEYS[1], '-', '+'); return {#log, log[1][1], log[1][2][2]}"
        assert own_redis.cli("eval", only, "1", "s0:embeddings").split() == ["1", f"{SAMPLES}-1", "0"]

        await asyncio.gather(*(worker.process.wait() for worker in cluster.workers))  # they do not come back
        cluster.dispatcher.process.send_signal(signal.SIGKILL)
        source.acknowledged = SAMPLES
        state = await drive(client, job, source)
        await export_model(job, tmp_path / "model", graphs=False)
        with pytest.raises(FailedPrecondition, match=f"has ended after {SAMPLES} samples"):
            await client.feed(job.name, lambda _: stream(training_stream(OPTIONS)))
    assert_same_run(training_result(state), tmp_path, undisturbed)


async def test_a_killed_client_goes_on_where_its_predecessor_was_acknowledged(undisturbed, tmp_path):
    """The dispatcher, which has the job, stays; the second client asks it where to go on."""
    async with running(tmp_path, store="memory", checkpoint_dir=tmp_path / "kept") as (cluster, client, job):
        address, server = cluster.dispatcher.address, cluster.parameter_servers[0].address
        options = [
            f"--{name.replace('_', '-')}={getattr(OPTIONS, name)}"
            for name in ("workers", "batch", "dim", "iterations", "seed", "checkpoint_every")
        ]
        services = ["--dispatcher", address, "--parameter-servers", server, "--table", job.table.name]
        first = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "esd.cli", "train", "--optimizer", "adam", "--lr", "0.002", *options, *services,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            await state_when(client, lambda state: state.iterations_confirmed >= 20, within=240)
        finally:
            with suppress(ProcessLookupError):
                first.kill()
            await first.communicate()
        assert (await client.describe()).phase is JobPhase.RUNNING
        run = await train_attached(
            OPTIONS, dispatcher=address, parameter_servers=server, table=job.table.name, out=tmp_path, graphs=False
        )
        result = run.result()
        assert not result["recoveries"]
    assert_same_run(result, tmp_path, undisturbed)
