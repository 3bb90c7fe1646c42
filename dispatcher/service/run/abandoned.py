"""The end of a job whose driver has gone away for good: without it the job would block the next one for ever."""

from __future__ import annotations

import asyncio

from esd.dispatcher.service.run.job import Job


async def end_when_abandoned(job: Job) -> None:
    """Fails the job when its stream is open and no driver has called for `driver_seconds`.

    A call is a sample submission or a request for the job's state. Of a stream with several submitters, the part whose
    turn it is must be submitted: requests of the other drivers say nothing about it. A job that waits for workers is
    not watched here: it waits for at most `join_seconds` (recovery.py). A job whose stream has ended needs no driver
    any more.
    """
    limit = job.settings.driver_seconds
    while (silence := job.submission.silence) < limit:  # noqa: ASYNC110 - sleeps to the earliest moment at which the limit can be reached
        await asyncio.sleep(limit - silence)
    absent = "no driver has submitted samples or asked for its state"
    if job.spec.submitters > 1:
        absent = f"nobody has submitted part {job.submission.turn} of its stream in its turn"
    job.fail(f"{absent} for {limit:g} s (the limit is {job.settings.variable('driver_seconds')})")
