"""`esd submit` waits for its job, and ends with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from esd.run.events import Event, Retrying
from esd.run.options import RunOptions
from esd.run.submitting import submit_part
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from tests.support.simple_clients import POLL_SECONDS, Dispatcher, job_with, samples

PART = RunOptions(data="synthetic:zipf?samples=40&fields=3")
JOB = job_with(submitters=2, features=PART.open(8).features, dense_features=0)
SECONDS = 60.0


async def test_a_part_waits_for_the_job_and_is_submitted_with_its_columns(dispatcher: Dispatcher) -> None:
    events: list[Event] = []
    submission = asyncio.create_task(submit_part(dispatcher.client, PART, 1, events.append))
    async with asyncio.timeout(SECONDS):
        while not events:  # noqa: ASYNC110 - a listener cannot wait
            await asyncio.sleep(POLL_SECONDS)
        assert isinstance(events[0], Retrying)
        assert "the dispatcher has no job yet" in str(events[0])
        await dispatcher.client.create_job(JOB)
        workers = [dispatcher.worker(f"edge-{slot}") for slot in range(JOB.workers)]
        part = dispatcher.client.submit(JOB.name, [samples(24, job=JOB)], part=0)
        *_, submitted, (told, count) = await asyncio.gather(*(worker.train() for worker in workers), part, submission)
    assert (submitted, told.name, count) == (24, JOB.name, 40)
    assert await submit_part(dispatcher.client, PART, 1) == (told, 40)  # repeated, it finds that all is there
    other = replace(PART, data="synthetic:zipf?samples=40&fields=3&skew=1.3")
    with pytest.raises(FailedPrecondition, match=r"has 40 samples of synthetic:zipf \(options .*, and these are synth"):
        await submit_part(dispatcher.client, other, 1)


async def test_a_part_that_the_job_lacks_is_refused_and_a_job_that_ends_is_told(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    with pytest.raises(InvalidArgument, match=r"part is 3 \(--part\), and the stream of job flights has 2 parts"):
        await submit_part(dispatcher.client, PART, 3)
    submission = asyncio.create_task(submit_part(dispatcher.client, PART, 1))
    await dispatcher.client.cancel_job(JOB.name, "for the test")
    with pytest.raises(FailedPrecondition, match="it was cancelled: for the test"):
        await submission
