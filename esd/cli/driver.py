"""Drives one training job on running services: creates it, streams the samples, shows how far it is."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from esd.cli.held_out import HeldOut, watched
from esd.cli.report import Result, messages, training_result
from esd.dispatcher.service.checkpoint.continuation import continuation
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, without_first
from esd.services.clients.checkpoints import CheckpointClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, NotFound, StorageUnwritable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobPhase, JobState
from esd.services.runtime.retry import AWAY, Backoff, repeated
from esd.services.runtime.security import PLAINTEXT, Credentials

Stream = AsyncIterable[SampleBatch] | Iterable[SampleBatch]

T = TypeVar("T")

POLL_SECONDS = 0.25  # of the job's state, for the progress bar
_CANCEL_SECONDS = 5.0  # whoever pressed Ctrl-C waits no longer
PATIENCE_SECONDS = 60.0  # with services that are away, of a job that can go on after it


async def train_to_the_end(
    client: AsyncDispatcherClient,
    chosen: RunOptions,
    job: JobSpec,
    stream: TrainingStream,
    progress: Callable[[JobState], None],
    held_out_samples: Iterable[SampleBatch] | None,
    out: Path | None,
    credentials: Credentials = PLAINTEXT,
) -> Result:
    """Trains a job on its stream, with the evaluations that are asked for, and keeps the model.

    Args:
        client: of the dispatcher.
        chosen: the options of the run.
        job: what to train.
        stream: its samples.
        progress: called with every state that was polled.
        held_out_samples: to evaluate the model on; None without any.
        out: directory for the model; None to leave it where it is.
        credentials: for the parameter servers.

    Raises:
        EsdError: as `drive`, or the model could not be fetched, or the samples could not be read.
    """
    async with watched(chosen, job, held_out_samples, client, credentials) as held_out:
        state = await drive(client, job, stream, progress, held_out)
        if out is not None:
            path = out / "model.npz"
            await repeated(lambda: export_model(job, path, credentials), PATIENCE_SECONDS, on=AWAY)
        if held_out is not None:  # whatever is wrong with the samples, the model is kept
            await held_out.finish(state.iterations_confirmed)
    return training_result(state, held_out.evaluations if held_out else ())


async def drive(
    client: AsyncDispatcherClient,
    job: JobSpec,
    batches: Iterable[SampleBatch],
    progress: Callable[[JobState], None],
    held_out: HeldOut | None = None,
) -> JobState:
    """Runs a job to its end and returns its final state.

    A dispatcher that is started again meanwhile gets the job again, and the samples that it has not trained. When the
    stream cannot be read, or the caller is cancelled, as by Ctrl-C, the job is cancelled, too: nobody would end it.

    Args:
        client: of the dispatcher.
        job: what to train.
        batches: the sample stream, in training order; each iteration over it begins at the first sample.
        progress: called with every state that was polled.
        held_out: evaluates the model meanwhile; what is left of it is for the caller to finish, when the model is safe.

    Raises:
        FailedPrecondition: the job failed; the message says why.
        DeadlineExceeded, Unavailable: the dispatcher is silent or away, for too long if the job takes checkpoints.
    """
    backoff = Backoff(PATIENCE_SECONDS)
    trained, resumed_from = False, job.first_iteration
    told = False  # that something is away, since the last answer of the dispatcher

    def seen(state: JobState) -> None:
        nonlocal trained, resumed_from, told
        trains = state.phase in (JobPhase.RUNNING, JobPhase.FLUSHING)
        if trains and state.resumed_from != resumed_from:
            messages.print(f"goes on at iteration {state.resumed_from}, the last checkpoint of table {job.table.name}")
            resumed_from = state.resumed_from
        trained |= trains
        backoff.reset()
        told = False
        progress(state)
        if held_out is not None:
            held_out.seen(state)

    def stream_from(taken: int) -> Stream:
        rest = without_first(batches, taken)
        return rest if held_out is None else held_out.gate(rest, taken)

    while True:
        try:
            final = await _drive_once(client, job, stream_from, seen)
            # A dispatcher that was started again at the very end found the job finished, too: by what was trained here.
            if not trained and final.resumed_from == final.iterations_planned:
                messages.print(
                    f"table {job.table.name} holds this job already, finished at iteration {final.resumed_from}: "
                    "nothing was trained now; to train anew, give another --table or an empty store"
                )
            return final
        except (NotFound, StorageUnwritable, *AWAY) as error:
            if not job.takes_checkpoints:
                raise
            if not told and not isinstance(error, NotFound):  # a dispatcher that does not know the job gets it now
                told = True
                messages.print(
                    f"{error}; tried again for {PATIENCE_SECONDS:g} s", markup=False, highlight=False, soft_wrap=True
                )
            await backoff.pause(error)


async def _drive_once(
    client: AsyncDispatcherClient,
    job: JobSpec,
    stream_from: Callable[[int], Stream],
    progress: Callable[[JobState], None],
) -> JobState:
    """Does what `drive` does on one dispatcher.

    Raises:
        NotFound: the dispatcher no longer knows the job; it was started again.
    """
    await client.create_job(job)
    try:
        return await _until_over(client, job, stream_from, progress)
    except asyncio.CancelledError:
        await _cancel(client, job, "its driver was stopped")
        raise
    except (FailedPrecondition, NotFound, StorageUnwritable, *AWAY):
        raise  # it is over, goes on without this driver, or cannot be reached
    except Exception as error:
        await _cancel(client, job, f"its driver cannot go on: {error}")
        raise


async def _until_over(
    client: AsyncDispatcherClient,
    job: JobSpec,
    stream_from: Callable[[int], Stream],
    progress: Callable[[JobState], None],
) -> JobState:
    """Feeds a job that is open, and watches it until it is over."""
    submission = asyncio.create_task(client.feed(job.name, stream_from), name="submit")
    try:
        while True:
            state = await client.describe()
            if state is None:
                raise NotFound(f"the dispatcher no longer knows job {job.name}")
            progress(state)
            if state.phase is JobPhase.FAILED:
                raise FailedPrecondition(state.failure)
            if state.phase is JobPhase.FINISHED:
                await submission
                return state
            if submission.done():
                submission.result()  # an unreadable sample ends the run
            await asyncio.sleep(POLL_SECONDS)
    finally:
        submission.cancel()
        await asyncio.gather(submission, return_exceptions=True)


async def _cancel(client: AsyncDispatcherClient, job: JobSpec, reason: str) -> None:
    """Ends the job as far as the dispatcher can be reached; whatever made the driver stop counts more than that."""
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await client.cancel_job(job.name, reason)
    except (EsdError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_CANCEL_SECONDS:g} s"
        messages.print(f"job {job.name} could not be cancelled: {reason}", markup=False, highlight=False)


async def going_on(job: JobSpec, credentials: Credentials = PLAINTEXT) -> JobSpec:
    """Returns a job as one that goes on from the model that its table holds.

    Raises:
        FailedPrecondition: it holds none.
        Unavailable: the first parameter server is away for too long.
    """
    async with ParameterServerConnection(job.parameter_servers[0], credentials=credentials) as server:
        try:
            stored = await repeated(CheckpointClient(server, job.table).get_checkpoint, PATIENCE_SECONDS, on=AWAY)
        except NotFound:
            return continuation(job, b"")
    return continuation(job, stored.manifest)


def run_until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` in an event loop of its own, and returns its result. SIGTERM cancels it, as Ctrl-C does.

    An exception that a signal's handler raises ends whatever task has the processor at that moment, and may end the
    loop before all is cleared up: a job that nobody feeds any more would keep its dispatcher from the next one.

    Raises:
        SystemExit: it was stopped by SIGTERM, and has cleared up.
    """
    stopped = False

    async def main() -> T:
        working = asyncio.current_task()
        assert working is not None  # noqa: S101 - this is one

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # a second one does not break off what clears up
                stopped = True
                working.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await work

    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # signals are the main thread's
    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if stopped:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def way_back_told(command: str | None) -> Iterator[Callable[[JobState], None]]:
    """Tells whoever stops a run, by Ctrl-C or SIGTERM, how it can go on.

    Args:
        command: what goes on with it; None if nothing does.

    Yields:
        What is to be called with every state of the job that was polled.
    """
    checkpoint = 0

    def seen(state: JobState) -> None:
        nonlocal checkpoint
        checkpoint = state.checkpoint

    try:
        yield seen
    except (KeyboardInterrupt, SystemExit):
        if command is not None and checkpoint:
            messages.print(f"stopped; {command} goes on at iteration {checkpoint}, the last checkpoint")
        raise


class Bar:
    """A progress bar, called with every state of the job that was polled."""

    def __init__(self, progress: Progress, title: str, first: int, iterations: int | None) -> None:
        self._progress = progress
        self._first = first
        self._task = progress.add_task(f"{title}: starting", total=iterations, figures="")
        self._title = title

    def __call__(self, state: JobState) -> None:
        """Shows the latest state."""
        self._progress.update(
            self._task,
            description=f"{self._title}: {state.phase.value}",
            completed=max(0, state.iterations_confirmed - self._first),
            figures=""
            if state.iterations_confirmed == 0
            else f"loss {state.quality.loss:.4f}, AUC {state.quality.auc:.4f}",
        )


@contextmanager
def progress_bar(title: str, first: int, iterations: int | None) -> Iterator[Bar]:
    """Shows a progress bar of iterations from `first` on, on standard error, if that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as progress:
        yield Bar(progress, title, first, iterations)
