"""The end of a job whose driver has gone away for good: nobody else would let the next job in."""

from __future__ import annotations

import asyncio

from esd.dispatcher.service.run.job import Job


async def end_when_abandoned(job: Job) -> None:
    """Fails the job when nobody has submitted samples or asked for its state for too long, and its stream is open.

    A job without workers needs no such care: it waits for them for `join_seconds` at most (recovery.py). A job whose
    stream has ended needs no driver any more.
    """
    limit = job.settings.driver_seconds
    while (silence := job.submission.silence) < limit:  # noqa: ASYNC110 - until it may be over at the earliest
        await asyncio.sleep(limit - silence)
    job.fail(
        f"nobody has submitted samples or asked for its state for {limit:g} s (the limit is"
        f" {job.settings.variable('driver_seconds')})"
    )
