"""The conformance test: a trainer, as processes, must train the model of one machine through a kill and a recovery."""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobState
from esd.services.runtime.settings import load
from esd.services.runtime.tasks import first_failure
from esd.testing import reference
from esd.testing.job import CACHE_ROWS, JOB, samples
from esd.testing.reference import Loss, TrainedModel

_FIRST_PART = 11  # iterations that come before the kill: the checkpoint at 6 is taken by then, the one at 12 is not
_KILLED_AT = 9
_POLL_SECONDS = 0.05
_TOLERANCE = 2e-4  # absolute, for values of about 1: the order of the float sums differs
_LOG_CHARACTERS = 2000

_bce = partial(binary_cross_entropy_with_logits, reduction="none")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run that conforms.

    Attributes:
        iterations: trained ones.
        evict_pushes: rows and gradients that were pushed because the cache was full.
        iterations_redone: iterations that were trained once more after the kill.
        deviation: the largest absolute difference of a value of a row or a parameter to the reference.
    """

    iterations: int
    evict_pushes: int
    iterations_redone: int
    deviation: float


def conformance(
    command: Sequence[str], model: Callable[[JobSpec], nn.Module], *, loss: Loss = _bce, within: float = 300.0
) -> Result:
    """Trains `esd.testing.JOB` with two processes of a trainer, and compares the result with plain torch.

    Services run in this process. The caches are too small for two iterations, so rows are evicted; one trainer is
    killed between two checkpoints and started again; in the last iteration one trainer has no sample. Call it outside
    an event loop.

    Args:
        command: starts a trainer, such as `[sys.executable, "-m", "my_trainer"]`. Its settings are in the environment,
            ESD_WORKER_NAME and so on, where `esd.Session()` finds them. It trains its dense parameters by SGD at the
            rate of `JOB.model.dense_optimizer`, and ends with exit code 0.
        model: makes the model that the trainer trains, as it is at first: embeddings [m, 8] by the name of the feature
            and dense features [m, 2] in, outputs [m] or [m, 1] out.
        loss: of outputs and labels, float32 [m, 1], the loss of each sample; with logits, the logistic loss.
        within: seconds for all of it.

    Raises:
        AssertionError: the trainer fails, does not finish in time, or trains another model. The text says which.
    """
    expected = reference.train(JOB, samples(), model(JOB), loss)
    try:
        state, found = asyncio.run(_train(command, within))
    except TimeoutError:
        raise AssertionError(f"the trainers did not finish within {within:g} s") from None
    return Result(
        iterations=state.iterations_confirmed,
        evict_pushes=sum(worker.transfers.evict_push for worker in state.workers),
        iterations_redone=sum(recovery.iterations_redone for recovery in state.recoveries),
        deviation=_compared(found, expected),
    )


async def _train(command: Sequence[str], within: float) -> tuple[JobState, TrainedModel]:
    """Trains the job, with a kill in the middle; returns its last state and its model."""
    async with asyncio.timeout(within), AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            parameter_server(load(ParameterServerSettings, metrics_port="none", grace_seconds=0))
        )
        dispatcher = await stack.enter_async_context(
            serve_dispatcher(load(DispatcherSettings, metrics_port="none", grace_seconds=0, rejoin_seconds=within))
        )
        client = await stack.enter_async_context(AsyncDispatcherClient(dispatcher.address))
        trainers = await stack.enter_async_context(Trainers(command, dispatcher.address))
        job = replace(JOB, parameter_servers=(server.address,))
        await client.create_job(job)
        try:
            async with asyncio.TaskGroup() as tasks:
                await _drive(client, job, trainers, tasks)
        except BaseExceptionGroup as failures:
            failure = first_failure(failures)
            if isinstance(failure, EsdError):
                raise AssertionError(f"the job failed: {failure}") from failure
            raise failure from None
        state = await client.describe()
        assert state is not None  # noqa: S101 - it has just finished
        return state, await _stored(job, state)


async def _drive(client: AsyncDispatcherClient, job: JobSpec, trainers: Trainers, tasks: asyncio.TaskGroup) -> None:
    """Starts the trainers, feeds the samples, and kills a trainer between two checkpoints."""
    recovered = asyncio.Event()

    async def source() -> AsyncIterator[SampleBatch]:
        stream, first = samples(), _FIRST_PART * job.batch_size
        yield stream[:first]
        await recovered.wait()
        yield stream[first:]

    async def until(condition: Callable[[JobState], bool]) -> None:
        while True:
            state = await client.describe()
            if state is not None and condition(state):
                return
            await asyncio.sleep(_POLL_SECONDS)

    first = tasks.create_task(trainers.run("first"))
    second = tasks.create_task(trainers.run("second"))
    tasks.create_task(client.submit(job.name, source()))
    await until(lambda state: state.iterations_confirmed >= _KILLED_AT and state.checkpoint > 0)
    trainers.kill("second")
    await second
    again = tasks.create_task(trainers.run("second"))
    await until(lambda state: len(state.recoveries) > 0)
    recovered.set()
    await first
    await again


class Trainers:
    """Processes of a trainer; those that are left at the end are killed.

    Args:
        command: starts a process.
        dispatcher: `host:port` of its dispatcher.
    """

    def __init__(self, command: Sequence[str], dispatcher: str) -> None:
        self._command = command
        self._dispatcher = dispatcher
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._killed: set[asyncio.subprocess.Process] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="esd-conformance-")

    async def __aenter__(self) -> Trainers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
            await process.wait()
        self._folder.cleanup()

    async def run(self, name: str) -> None:
        """Runs a trainer to its end.

        Raises:
            AssertionError: it ends with another exit code than 0, and was not killed here.
        """
        log = Path(self._folder.name) / f"{name}.log"
        settings = {
            "ESD_WORKER_NAME": name,
            "ESD_WORKER_DISPATCHER": self._dispatcher,
            "ESD_WORKER_LINK": "1e9",
            "ESD_WORKER_CACHE_ROWS": str(CACHE_ROWS),
        }
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=os.environ | settings,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=file,
            )
        self._running[name] = process
        code = await process.wait()
        if code and process not in self._killed:
            said = log.read_text(errors="replace")[-_LOG_CHARACTERS:]
            raise AssertionError(f"the trainer {name!r} ended with exit code {code}:\n{said}")

    def kill(self, name: str) -> None:
        """Kills a trainer at once."""
        process = self._running[name]
        self._killed.add(process)
        process.kill()


async def _stored(job: JobSpec, state: JobState) -> TrainedModel:
    """Reads the model that the parameter server holds."""
    async with ParameterServerConnection(job.parameter_servers[0]) as server:
        table = TableClient([server], job.table)
        blocks = [block async for block in table.scan()]
        dense = await table.get_dense()
    ids = np.concatenate([block.ids for block in blocks])
    rows = np.concatenate([block.rows for block in blocks])
    order = np.argsort(ids)
    with np.load(io.BytesIO(dense), allow_pickle=False) as arrays:
        parameters = {name: arrays[name] for name in arrays.files}
    return TrainedModel(ids[order], rows[order, : job.table.dimension], parameters, state.quality.loss)


def _compared(found: TrainedModel, expected: TrainedModel) -> float:
    """Returns the largest difference. Raises AssertionError when it is more than the order of float sums makes."""
    if not np.array_equal(found.ids, expected.ids):
        raise AssertionError(f"{len(found.ids)} rows were trained, the samples have {len(expected.ids)} ids")
    parts = {"rows": (found.rows, expected.rows), "the mean loss": (np.array(found.loss), np.array(expected.loss))}
    for name, values in expected.dense.items():
        trained = found.dense.get(name, np.empty(0))
        if trained.shape != values.shape:
            raise AssertionError(f"parameter {name} was trained as {trained.shape}, the model has {values.shape}")
        parts[f"parameter {name}"] = trained, values
    deviations = {name: float(np.abs(one - other).max()) for name, (one, other) in parts.items()}
    wrong = [f"{name} by {deviation:.2g}" for name, deviation in deviations.items() if not deviation <= _TOLERANCE]
    if wrong:
        raise AssertionError(
            f"the trained model differs from the reference, which allows {_TOLERANCE}: {'; '.join(wrong)}"
        )
    return max(deviations.values())
