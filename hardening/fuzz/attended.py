"""A job that is trained for real while one of its workers lies: the others and the model must not notice."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np

from esd.run.worker_host import WorkerHost, end_of
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.state import JobPhase, JobState
from esd.services.domain.tables import OptimizerSpec, TableSpec
from hardening.fuzz.liar import Lies
from hardening.fuzz.meddler import Honest, Meddling, meddler
from hardening.fuzz.rival import rival_of
from tests.support.reference import train_reference
from tests.support.server_client import ServerClient

READY_SECONDS = 120.0
_BATCH = 12
_TOLERANCE = 1e-4  # of float32 sums in another order, relative to the norm
_ATTEND = "/esd.v1.Dispatcher/Attend"


def running_job(server: str, *, workers: int, name: str = "running", checkpoint_every: int = 10) -> JobSpec:
    """Makes a job with small caches, so that much moves, and with checkpoints, so that it goes on after failures."""
    optimizer = OptimizerSpec(learning_rate=0.05)
    return JobSpec(
        name=name,
        dense_sum=ALL_REDUCE,
        workers=workers,
        features=numbered_ids(4),
        dense_features=2,
        batch_size=_BATCH,
        workloads=equal_workloads(_BATCH, workers),
        mechanism="esd",
        policy="emark",
        seed=7,
        window=4,
        tables=(TableSpec(f"{name}-rows", 5, optimizer, seed=7, init_scale=0.1),),
        model=ModelSpec("wdl", (8,), optimizer),
        parameter_servers=(server,),
        checkpoint_every=checkpoint_every,
    )


def stream(batches: int) -> list[SampleBatch]:
    """Makes global batches over some 60 ids, a few of them in most samples."""
    rng = np.random.default_rng(3)
    universe = rng.integers(0, 2**64, 60, np.uint64)
    return [
        SampleBatch.of_fields(
            ids=universe[(60 * rng.random((_BATCH, 4)) ** 2).astype(int)],
            dense=rng.normal(size=(_BATCH, 2)).astype(np.float32),
            labels=rng.integers(0, 2, _BATCH).astype(np.float32),
        )
        for _ in range(batches)
    ]


@asynccontextmanager
async def worker_processes(dispatchers: Sequence[str], folder: Path) -> AsyncIterator[list[Path]]:
    """Runs workers, each with a dispatcher of its own; gives their logs.

    Raises:
        AssertionError: a worker has not ended in order when the block is left.
    """
    host = WorkerHost(folder / "worker-host.log", READY_SECONDS)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(host.close)
        logs = [folder / f"worker-{number}.log" for number in range(len(dispatchers))]
        processes = []
        for number, (address, log) in enumerate(zip(dispatchers, logs, strict=True)):
            settings = {
                "NAME": f"w-{number}", "DISPATCHER": address, "LINK": "1e9", "CACHE_ROWS": "26", "METRICS_PORT": "none",
            }  # fmt: skip
            environment = {**os.environ, **{f"ESD_WORKER_{key}": value for key, value in settings.items()}}
            with log.open("ab") as stderr:
                processes.append(await host.start_worker((), environment, stderr.fileno()))
        yield logs
        async with asyncio.timeout(READY_SECONDS):
            codes = [await process.wait() for process in processes]
        for code, log in zip(codes, logs, strict=True):
            if code:
                raise AssertionError(f"a worker has ended with exit code {code}: {end_of(log)}")


async def train_beside_a_liar(dispatcher: str, server: str, folder: Path, lies: Lies, *, iterations: int) -> JobState:
    """Trains a job of two workers, of which one lies, while another dispatcher claims the job's epochs.

    Args:
        dispatcher: address of the dispatcher.
        server: address of the parameter server.
        folder: folder of the logs.
        lies: the lies of the one worker.
        iterations: number of iterations.

    Returns:
        The state of the job at its end.

    Raises:
        AssertionError: a lie or a claim was believed or answered wrongly, the job did not end, or the model differs
            from the model that one machine trains.
    """

    def meddling(method: str) -> Meddling:
        return lies.stream() if method == _ATTEND else Honest()

    job, batches = running_job(server, workers=2), stream(iterations)
    async with (
        AsyncDispatcherClient(dispatcher) as client,
        meddler(dispatcher, meddling) as liar,
        worker_processes([dispatcher, liar], folder),
    ):
        await client.create_job(job)
        async with rival_of(job):
            await client.submit(job.name, batches)
    async with AsyncDispatcherClient(dispatcher) as client:
        state = await client.describe()
    if faults := lies.faults():
        raise AssertionError(f"{len(faults)} of {lies.told} lies were answered wrongly, such as {faults[0][:1000]}")
    if state is None or state.phase is not JobPhase.FINISHED:
        raise AssertionError(f"beside a liar the job has come to {state and state.failure}")
    await assert_model(job, batches)
    return state


async def assert_model(job: JobSpec, batches: Sequence[SampleBatch]) -> None:
    """Raises AssertionError unless the parameter server has the model that one machine trains from these batches."""
    expected = train_reference(job, batches)
    async with ServerClient(job.parameter_servers[0], job.table) as server:
        blocks = [block async for block in server.scan()]
        dense = dict(np.load(io.BytesIO(await server.get_dense())))
    ids = np.concatenate([block.ids for block in blocks])
    order = np.argsort(ids)
    _expect(np.array_equal(ids[order], expected.ids), "rows", job)
    versions = np.concatenate([block.versions for block in blocks])[order]
    _expect(np.array_equal(versions, expected.versions), "versions", job)
    rows = np.concatenate([block.rows for block in blocks])[order]
    _expect(_distance(rows, expected.rows) < _TOLERANCE, "values of rows", job)
    for name, values in expected.dense.items():
        _expect(_distance(dense[name], values) < _TOLERANCE, f"dense parameters {name}", job)


def _distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _expect(holds: bool, what: str, job: JobSpec) -> None:
    if not holds:
        raise AssertionError(f"the {what} of job {job.name} are not those that one machine trains")
