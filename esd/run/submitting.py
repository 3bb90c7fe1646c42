"""Submits one part of the stream of a job that another driver has opened, as at another site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from esd.run.events import Listener, ignore
from esd.run.options import RunOptions
from esd.run.patience import ABSENT, Patience
from esd.run.prepare import in_thread
from esd.run.stream import training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, NotFound
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sources import Taken


async def submit_part(
    client: AsyncDispatcherClient, options: RunOptions, part: int, listener: Listener = ignore
) -> tuple[JobSpec, int]:
    """Submits a part until the job has all of its samples, and knows that it ends there.

    A job is waited for, at the beginning and when the dispatcher is started again: the driver that opens it may come
    later. If the call is cancelled, the part stays open, and another call goes on behind its accepted samples.

    Args:
        client: of the dispatcher.
        options: the data of the part, and how they are read; sites and the like are the job's.
        part: the number of the part.
        listener: gets `Retrying` when the dispatcher or the job is away.

    Returns:
        The job, and the number of samples of the part.

    Raises:
        InvalidArgument: the data cannot be read, or the job has no such part, or other columns.
        FailedPrecondition: another submitter feeds the part, or has fed it from other data; or the job failed; or the
            dispatcher has another job now.
        NotFound, Unavailable: job or dispatcher are away for too long.
    """
    job = await Patience(listener, ABSENT).until_done(lambda: _open_job(client))
    of_the_job = replace(options, submitters=job.submitters, sites=",".join(job.sites) or None)
    stream = await in_thread(lambda: training_stream(of_the_job), listener)
    patience = Patience(listener, ABSENT)

    def behind(taken: Taken) -> Iterator[SampleBatch]:
        patience.begin_anew()
        return stream.behind(taken)

    async def submit() -> int:
        found = await _open_job(client)
        if (found.name, found.table, found.stream) != (job.name, job.table, job.stream):
            raise FailedPrecondition(
                f"the dispatcher trains another job now, {found.name} on table {found.table.name!r}: part {part} is of "
                f"{job.name} on table {job.table.name!r}"
            )
        return await client.feed(job.name, behind, part=part, stream=stream.dataset.fingerprint)

    return job, await patience.until_done(submit)


async def _open_job(client: AsyncDispatcherClient) -> JobSpec:
    state = await client.describe()
    if state is None:
        raise NotFound("the dispatcher has no job yet")
    return state.job
