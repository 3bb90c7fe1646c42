"""Two submitters of one stream, at two sites: killed processes leave the model of a run over the merged stream."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.results import training_result
from esd.run.stream import training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobState
from tests.recovery.kills import OPTIONS, HeldBack, Interruption, assert_same_run
from tests.support import training
from tests.support.stream_parts import merged

LENGTHS = (1000, 700)  # samples of the parts: the second ends early
KILLED_AT, AHEAD = 15, 20  # iterations: in the middle of the parts, behind a checkpoint; part 0 has so many before that


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunOptions, Path, Path]:
    """The run over part 0, and the files of part 1 and of the merged stream."""
    folder, rng = tmp_path_factory.mktemp("sites"), np.random.default_rng(11)
    options = replace(
        OPTIONS, data=str(folder / "north.csv"), schema=folder / "clicks.toml", batch=16, iterations=None,
        checkpoint_every=10, submitters=2,
    )  # fmt: skip
    (folder / "clicks.toml").write_text('label = "clicked"\nids = ["user", "item"]\ndense = ["price"]\n')
    parts = [
        [f"{rng.integers(0, 2)},{site}{rng.integers(0, 60)},{rng.zipf(1.5) % 80},{rng.random():.3f}" for _ in range(n)]
        for site, n in zip(("north", "south"), LENGTHS, strict=True)
    ]
    shares = [sum(options.worker_samples()) // 2] * 2
    for name, lines in (("north", parts[0]), ("south", parts[1]), ("both", merged(parts, shares))):
        (folder / f"{name}.csv").write_text("\n".join(["clicked,user,item,price", *lines]) + "\n")
    return options, folder / "south.csv", folder / "both.csv"


@pytest.fixture(scope="module")
def undisturbed(sites: tuple[RunOptions, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """One submitter, which has merged the parts by hand."""
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(replace(sites[0], data=str(sites[2]), submitters=1), store="memory", shards=1, out=path)


@asynccontextmanager
async def running(tmp_path: Path, options: RunOptions) -> AsyncIterator[tuple[LocalServices, JobSpec]]:
    """A cluster of local processes that are started again when they die, and the job."""
    data = training_stream(options).dataset
    async with LocalServices(
        shards=1, worker_links=options.bandwidths(), cache_rows=[options.cache_rows] * 2, logs=tmp_path, store="memory",
        checkpoint_dir=tmp_path / "kept",
    ) as cluster:  # fmt: skip
        servers = (cluster.parameter_servers[0].address,)
        care = asyncio.create_task(cluster.supervisor.supervise(5))
        try:
            shape = {"features": data.features, "dense_features": data.dense_features, "labels": data.labels}
            yield cluster, options.job(**shape, parameter_servers=servers)
        finally:
            care.cancel()
            await asyncio.gather(care, return_exceptions=True)


async def submitter(cluster: LocalServices, options: RunOptions, data: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.cli", "submit", "--dispatcher", cluster.dispatcher.address, "--part", "1",
        "--data", str(data), "--schema", str(options.schema), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_a_killed_submitter_and_a_killed_dispatcher_leave_the_model_of_the_merged_stream(
    sites: tuple[RunOptions, Path, Path], undisturbed: tuple[Path, dict], tmp_path: Path
) -> None:
    """Both die at one moment, in which each part has more samples to come; one that is started again goes on."""
    options, south, _ = sites
    interruption = Interruption(lambda _: None)
    stream = training_stream(options)
    held_back = HeldBack(
        stream.dataset, None, stream.batch_size, stream.whole, ahead=AHEAD * stream.batch_size // 2,
        interruption=interruption,
    )  # fmt: skip
    async with (
        running(tmp_path, options) as (cluster, job),
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):

        def watch(state: JobState) -> None:
            if not interruption.over.is_set() and state.iterations_confirmed >= KILLED_AT and state.checkpoint > 0:
                cluster.dispatcher.process.send_signal(signal.SIGKILL)
                first.kill()
                interruption.over.set()

        first = await submitter(cluster, options, south)
        submitters = [first]
        try:
            async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
                driving = tasks.create_task(drive(client, job, held_back, on_progress(watch)))
                assert await first.wait() == -signal.SIGKILL
                submitters.append(await submitter(cluster, options, south))
                _, told = await submitters[-1].communicate()
        finally:
            for process in submitters:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()
        state = driving.result()
        assert f"part 1 of job {job.name} has ended after {LENGTHS[1]} samples" in told.decode()
        assert state.resumed_from > 0
        await export_model(job, tmp_path / "model", graphs=False)
    assert_same_run(training_result(state), tmp_path, undisturbed)
