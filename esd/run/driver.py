"""Drives one training job on running services: creates it, streams the samples, reports how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable

from esd.data import Dataset
from esd.data.positions import ReadsOn
from esd.dispatcher.service.checkpoint.continuation import continuation, rules_changed, stream_of
from esd.run.events import (
    AlreadyTrained,
    Checkpointed,
    Listener,
    NotCancelled,
    Progressed,
    Resumed,
    SchemaChanged,
    StandsStill,
    Unanswered,
    ignore,
)
from esd.run.held_out import HeldOut
from esd.run.patience import ABSENT, Patience
from esd.run.stream import samples_behind
from esd.services.clients.checkpoints import CheckpointClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, NotFound
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sources import Taken
from esd.services.domain.state import JobPhase, JobState
from esd.services.runtime.security import PLAINTEXT, Credentials

Stream = AsyncIterable[SampleBatch] | Iterable[SampleBatch]

POLL_SECONDS = 0.25  # of the job's state
_ANSWER_SECONDS = 10.0  # after which the wait for the dispatcher's first answer is reported
_CANCEL_SECONDS = 5.0  # whoever pressed Ctrl-C waits no longer


async def drive(
    client: AsyncDispatcherClient,
    job: JobSpec,
    batches: Iterable[SampleBatch],
    listener: Listener = ignore,
    held_out: HeldOut | None = None,
) -> JobState:
    """Runs a job to its end and returns its final state.

    A dispatcher that is started again meanwhile gets the job again, and the samples that it has not trained. When the
    stream cannot be read, or the caller is cancelled, as by Ctrl-C, the job is cancelled, too: it has no other driver.

    Args:
        client: of the dispatcher.
        job: the job.
        batches: the sample stream, or the first part of it, in training order; each iteration over it begins at the
            first sample. A `TrainingStream` of a source with positions is opened where the job needs it.
        listener: gets `Progressed` with every state of the job; `Resumed`, `Checkpointed`, `Retrying`, `StandsStill`,
            `Unanswered`, `NotCancelled` and `AlreadyTrained` when they happen.
        held_out: evaluates the model meanwhile; the caller finishes its last evaluation when the model is safe.

    Raises:
        FailedPrecondition: the job failed; the message says why.
        DeadlineExceeded, Unavailable: the dispatcher is silent or away, for too long if the job takes checkpoints.
    """
    patience = Patience(listener, ABSENT)
    watcher = _Watcher(job, listener)

    def seen(state: JobState) -> None:
        patience.begin_anew()
        watcher.seen(state)
        if held_out is not None:
            held_out.seen(state)

    def stream_from(taken: Taken) -> Stream:
        rest = samples_behind(batches, taken)
        return rest if held_out is None else held_out.gate(rest, taken)

    async def once() -> JobState:
        return await _drive_once(client, job, stream_from, seen, listener)

    async def again_if_it_is_lacked() -> JobState:
        try:
            return await once()
        except NotFound:  # a dispatcher that was started again gets the job, and none is away
            return await once()

    final = await (patience.until_done(again_if_it_is_lacked) if job.takes_checkpoints else once())
    watcher.finished(final)
    return final


class _Watcher:
    """Reports the changes from one state of a job to the next."""

    def __init__(self, job: JobSpec, listener: Listener) -> None:
        self._job = job
        self._listener = listener
        self._trained = False
        self._resumed_from = job.first_iteration
        self._checkpoint = 0
        self._standstill = ""  # as it was reported

    def seen(self, state: JobState) -> None:
        trains = state.phase in (JobPhase.RUNNING, JobPhase.FLUSHING)
        if trains and state.resumed_from != self._resumed_from:
            self._listener(Resumed(self._job.table.name, state.resumed_from))
            self._resumed_from = state.resumed_from
        if state.checkpoint > self._checkpoint:
            self._listener(Checkpointed(state.checkpoint))
            self._checkpoint = state.checkpoint
        if state.standstill and not self._standstill:
            self._listener(StandsStill(state.standstill))
        self._standstill = state.standstill
        self._trained |= trains
        self._listener(Progressed(state))

    def finished(self, final: JobState) -> None:
        # A dispatcher that was started again at the very end found the job finished, too: by what was trained here.
        if not self._trained and final.resumed_from == final.iterations_planned:
            self._listener(AlreadyTrained(self._job.table.name, final.resumed_from))


async def _drive_once(
    client: AsyncDispatcherClient,
    job: JobSpec,
    stream_from: Callable[[Taken], Stream],
    seen: Callable[[JobState], None],
    listener: Listener,
) -> JobState:
    """Runs a job to its end on one dispatcher.

    Raises:
        NotFound: the dispatcher no longer knows the job; it was started again.
    """
    report = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, listener, Unanswered(_ANSWER_SECONDS))
    try:
        await client.create_job(job)
    finally:
        report.cancel()
    try:
        return await _until_over(client, job, stream_from, seen)
    except asyncio.CancelledError:
        await _cancel(client, job, "its driver was stopped", listener)
        raise
    except (FailedPrecondition, *ABSENT):
        raise  # it is over, goes on without this driver, or cannot be reached
    except Exception as error:
        await _cancel(client, job, f"its driver cannot go on: {error}", listener)
        raise


async def _until_over(
    client: AsyncDispatcherClient,
    job: JobSpec,
    stream_from: Callable[[Taken], Stream],
    seen: Callable[[JobState], None],
) -> JobState:
    """Feeds a job that is open, and watches it until it is over."""
    submission = asyncio.create_task(client.feed(job.name, stream_from, part=0), name="submit")
    try:
        while True:
            state = await client.describe()
            if state is None:
                raise NotFound(f"the dispatcher no longer knows job {job.name}")
            seen(state)
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


async def _cancel(client: AsyncDispatcherClient, job: JobSpec, reason: str, listener: Listener) -> None:
    """Ends the job if the dispatcher can be reached. A failure is reported only: the driver's own error counts more."""
    try:
        async with asyncio.timeout(_CANCEL_SECONDS):
            await client.cancel_job(job.name, reason)
    except (EsdError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_CANCEL_SECONDS:g} s"
        listener(NotCancelled(job.name, reason))


async def going_on(
    job: JobSpec,
    credentials: Credentials = PLAINTEXT,
    listener: Listener = ignore,
    *,
    read_on: Dataset | None = None,
) -> JobSpec:
    """Returns a job as one that goes on from the model that its table holds.

    Args:
        job: as if it began anew.
        read_on: the data, which are read on where the earlier run ended; None: they are read from their beginning.
        credentials: for the first parameter server.
        listener: gets `SchemaChanged` for each rule of the samples that differs from the rule of the earlier run, and
            `Retrying` if the server is away.

    Raises:
        InvalidArgument: `read_on` is no log, or its address says another beginning.
        FailedPrecondition: it holds none; or the earlier run was on another log than `read_on`.
        Unavailable: the first parameter server is away for too long.
    """
    async with ParameterServerConnection(job.parameter_servers[0], credentials=credentials) as server:
        try:
            stored = await Patience(listener).until_done(CheckpointClient(server, job.table).get_checkpoint)
        except NotFound:
            return continuation(job, b"")
    if read_on is not None:
        _check_reads_on(read_on, stream_of(stored.manifest))
    continued = continuation(job, stored.manifest, continues_stream=read_on is not None)
    for changed in rules_changed(continued, stored.manifest):
        listener(SchemaChanged(job.table.name, changed))
    return continued


def _check_reads_on(dataset: Dataset, earlier: str) -> None:
    if not isinstance(dataset, ReadsOn):
        raise InvalidArgument(
            "--continue-stream goes on in a log (redis+stream://, kafka://, nats://), and these data are none: leave "
            "it out, and they are read from their beginning"
        )
    dataset.check_reads_on(earlier.partition(": ")[2] if earlier.startswith("part 0 of ") else earlier)
