"""A worker and its dispatcher that get one wrong message in the middle of a job.

Each attempt is a job of its own. One message of the dispatcher to the worker, or of the parameter server to either, is
twisted on its way. No process may crash, hang or reveal internals, and the next job must work.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from esd.run.worker_host import ForkedProcess, WorkerHost, end_of
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobPhase
from hardening.fuzz.attended import READY_SECONDS, assert_model, running_job, stream
from hardening.fuzz.calls import tells_too_much
from hardening.fuzz.meddler import meddler
from hardening.fuzz.wrongs import Twister, Wrong

_ITERATIONS = 8  # of an attempt; a checkpoint is in their middle
_PATIENCE_SECONDS = 3.0  # for a job that waits for the receiver of a wrong message; then it is cancelled
_END_SECONDS = 60.0  # for all processes to end then, and for an undisturbed job
# Exit codes of a worker that ended in order, failed, refused a message, or was ended here.
_EXIT_CODES = (0, 1, 2, -signal.SIGTERM)
_MOST_BYTES = 2**30  # of memory that a worker takes; torch is a quarter of it
_SETTINGS = {
    "LINK": "1e9",
    "CACHE_ROWS": "80",
    "METRICS_PORT": "none",
    "PEER_TIMEOUT": "1",
    "RETRY_TIMEOUT": "1",
    "JOB_TIMEOUT": "10",
}


@dataclass(slots=True)
class Told:
    """The results of the attempts.

    Attributes:
        outcomes: number of attempts by the end of the job.
        twisted: number of twisted messages by method; an attempt may end before its message comes.
        most_bytes: the largest memory of a worker.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    twisted: Counter[str] = field(default_factory=Counter)
    most_bytes: int = 0


async def tell(dispatcher: str, server: str, folder: Path, wrongs: Sequence[Wrong]) -> Told:
    """Makes one attempt for each wrong message, and then trains an undisturbed job.

    Args:
        dispatcher: address of the dispatcher.
        server: address of the parameter server.
        folder: folder of the logs.
        wrongs: the wrong messages.

    Raises:
        AssertionError: a process has crashed, hung, revealed internals, or does not do its work any more.
    """
    told = Told()
    twister = Twister(told.twisted)
    host = WorkerHost(folder / "worker-host.log", READY_SECONDS)
    async with (
        AsyncDispatcherClient(dispatcher) as client,
        meddler(dispatcher, twister.meddling) as to_worker,
        meddler(server, twister.meddling) as of_server,
    ):
        try:
            for number, wrong in enumerate([*wrongs, None]):
                twister.begin(wrong)
                job = running_job(of_server, workers=1, name=f"told-{number}", checkpoint_every=4)
                log = folder / f"told-{number}.log"
                try:
                    patience = _PATIENCE_SECONDS if wrong is not None else _END_SECONDS
                    outcome = await _attempt(client, host, to_worker, job, log, told, patience)
                except (AssertionError, TimeoutError) as error:
                    raise AssertionError(f"{error or 'it hangs'}, after {wrong}; {end_of(log)}") from None
                told.outcomes[outcome] += 1
        finally:
            await host.close()
        if outcome != JobPhase.FINISHED.value:
            raise AssertionError(f"a job without anything wrong has {outcome} afterwards; {end_of(log)}")
        await assert_model(job, stream(_ITERATIONS))
    return told


async def _attempt(
    client: AsyncDispatcherClient,
    host: WorkerHost,
    dispatcher: str,
    job: JobSpec,
    log: Path,
    told: Told,
    patience: float,
) -> str:
    """Runs one job, which is cancelled after `patience` seconds, and returns how it ended."""
    async with asyncio.timeout(patience + _END_SECONDS), _worker(host, dispatcher, log, told) as worker:
        driving = asyncio.create_task(_drive(client, job, worker))
        try:
            async with asyncio.timeout(patience):
                await worker.wait()
        except TimeoutError:
            with suppress(EsdError):  # the job has not begun
                await client.cancel_job(job.name, "a process waits for a message that does not come")
            _terminate(worker)
        code = await worker.wait()
        driving.cancel()
        (failure,) = await asyncio.gather(driving, return_exceptions=True)
    if code not in _EXIT_CODES:
        raise AssertionError(f"the worker has ended with exit code {code}")
    _judge(str(failure or ""))
    state = await client.describe()
    if state is None or state.job.name != job.name:
        return "not begun"
    with suppress(EsdError):
        await client.cancel_job(job.name, "the next one comes")
    _judge(state.failure)
    return state.phase.value


async def _drive(client: AsyncDispatcherClient, job: JobSpec, worker: ForkedProcess) -> None:
    """Opens a job and gives it its samples."""
    try:
        await client.create_job(job)
    except EsdError:  # from the parameter server's answer to the dispatcher
        _terminate(worker)
        raise
    await client.submit(job.name, stream(_ITERATIONS))


def _terminate(worker: ForkedProcess) -> None:
    with suppress(ProcessLookupError):  # it may have come to its end a moment before
        worker.terminate()


@asynccontextmanager
async def _worker(host: WorkerHost, dispatcher: str, log: Path, told: Told) -> AsyncIterator[ForkedProcess]:
    """Runs a worker, looks at its memory now and then, and at its log at the end."""
    settings = {f"ESD_WORKER_{key}": value for key, value in _SETTINGS.items()}
    settings |= {"ESD_WORKER_NAME": "w", "ESD_WORKER_DISPATCHER": dispatcher}
    with log.open("wb") as stderr:
        process = await host.start_worker((), {**os.environ, **settings}, stderr.fileno())
    watching = asyncio.create_task(_watch(process, told))
    try:
        await process.stdout.readline()  # it is ready, and ends in order when it is told to
        yield process
    finally:
        watching.cancel()
        with suppress(ProcessLookupError):
            process.kill()
    if told.most_bytes > _MOST_BYTES:
        raise AssertionError(f"the worker has taken {told.most_bytes} bytes of memory")
    _judge_log(log)


async def _watch(process: ForkedProcess, told: Told) -> None:
    while True:
        told.most_bytes = max(told.most_bytes, most_bytes(process.pid))
        await asyncio.sleep(0.05)


def most_bytes(pid: int) -> int:
    """Returns the most memory that a process has taken so far; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return 1024 * int(line.split()[1])
    return 0


def _judge_log(log: Path) -> None:
    text = log.read_text()
    if "Traceback" in text or "defect" in text:
        raise AssertionError("the worker has not caught an error")
    for error in re.findall(r"^error: .*", text, re.MULTILINE):
        _judge(error)


def _judge(text: str) -> None:
    if tells_too_much(text):
        raise AssertionError(f"this tells too much: {text!r}")
