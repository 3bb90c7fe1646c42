"""The dispatcher chooses the way to sum dense gradients by the links of its workers, once for a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.core.decision_log import EpochBegan, read_decisions
from esd.dispatcher.service.checkpoint.continuation import continuation
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE, AUTO, DenseSum, LowRank, ServerSum
from esd.services.domain.jobs import JobSpec
from tests.integration.dispatcher.checkpointed_job import start_job
from tests.support.server_client import ServerClient
from tests.support.simple_clients import Dispatcher, job_with, registration, samples, state_when, stream

SLOW, FAST = {"bandwidth": 1e6}, {"bandwidth": 1e9}


async def train(dispatcher: Dispatcher, job: JobSpec, batches: int, **link: float) -> list[DenseSum]:
    """Trains a job with two workers of a link; returns the ways that they were told."""
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(2)]
    for worker in workers:
        worker.lease = await dispatcher.client.register(registration(worker.name, **link))
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, stream([samples(8)] * batches)))
    return [worker.membership.job.dense_sum for worker in workers]


@pytest.mark.parametrize(
    ("link", "way"),
    [(SLOW, ServerSum()), (FAST, ALL_REDUCE), (SLOW | {"lan": 1e9}, ALL_REDUCE)],
    ids=["slow", "fast", "second network"],
)
async def test_links_decide_and_the_choice_is_shown(
    link: dict[str, float], way: DenseSum, start_dispatcher: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dispatcher = await start_dispatcher(decision_log=tmp_path / "log")
    assert await train(dispatcher, job_with(dense_sum=AUTO), 3, **link) == [way] * 2
    state = await dispatcher.client.describe()
    assert state is not None
    assert state.job.dense_sum == way
    assert [each.dense_sum for each in read_decisions(tmp_path / "log") if isinstance(each, EpochBegan)] == [str(way)]
    assert f"dense gradients are summed by {way}, chosen for links of" in caplog.text


async def test_a_way_that_is_asked_for_is_taken(dispatcher: Dispatcher) -> None:
    assert await train(dispatcher, job_with(dense_sum=ALL_REDUCE), 1, **SLOW) == [ALL_REDUCE] * 2


async def test_a_choice_outlives_the_dispatcher_and_the_links(
    dispatcher: Dispatcher, server: str, start_dispatcher: Any
) -> None:
    """A dispatcher that finds the job at a checkpoint gets workers with fast links; so does a job that continues it."""
    job, *workers = await start_job(dispatcher, server, dense_sum=AUTO)
    training = [asyncio.create_task(worker.train()) for worker in workers]
    training.append(asyncio.create_task(dispatcher.client.submit(job.name, endless())))
    await state_when(dispatcher.client, lambda state: state.checkpoint == 4)
    for task in training:
        task.cancel()
    await asyncio.gather(*training, return_exceptions=True)
    await dispatcher.dismiss()
    await dispatcher.stop()

    second = await start_dispatcher()
    assert await train(second, job, 5, **FAST) == [ServerSum()] * 2
    assert await train(await start_dispatcher(), await continued(job, server), 3, **FAST) == [ServerSum()] * 2


async def endless() -> AsyncIterator[SampleBatch]:
    """Yields five batches, and does not end."""
    for _ in range(5):
        yield samples(8)
    await asyncio.Event().wait()


async def continued(job: JobSpec, server: str, **changes: Any) -> JobSpec:
    """Returns a job that continues another one with other samples."""
    async with ServerClient(server, job.table) as shard:
        stored = await shard.get_checkpoint()
    return continuation(replace(job, **{"stream": "more"} | changes), stored.manifest)


async def test_a_job_that_continues_one_of_low_rank_goes_on_so_unless_it_is_asked_not_to(
    dispatcher: Dispatcher, server: str, start_dispatcher: Any
) -> None:
    job = job_with(dense_sum=LowRank(4), checkpoint_every=2, parameter_servers=(server,))
    await train(dispatcher, job, 3, **SLOW)
    for asked, way in ((AUTO, LowRank(4)), (ALL_REDUCE, ALL_REDUCE)):
        more = await continued(job, server, stream=str(asked), dense_sum=asked)
        assert await train(await start_dispatcher(), more, 3, **SLOW) == [way] * 2
