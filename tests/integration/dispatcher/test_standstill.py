"""A job that trains nothing although samples wait is reported with the workers that it waits for, and fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.plans import IterationPlan
from esd.services.domain.state import JobPhase
from esd.services.runtime.metrics import STANDSTILL
from tests.support.simple_clients import Dispatcher, job_with, report_of, samples, state_when


def gauge() -> float:
    (family,) = STANDSTILL.collect()
    return float(family.samples[0].value)


async def test_a_worker_that_hangs_while_it_sends_heartbeats_is_named_and_ends_the_job(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = await start_dispatcher(lease_seconds=3, standstill_warning_seconds=1, standstill_seconds=5)
    job = job_with()
    await dispatcher.client.create_job(job)
    well, hanging = dispatcher.worker("edge-0"), dispatcher.worker("edge-1")

    async def hang(plan: IterationPlan) -> None:
        if plan.iteration == 1:
            await asyncio.Event().wait()
        await hanging.send(report_of(plan))

    hanging.report = hang  # type: ignore[method-assign,assignment]
    training = [asyncio.create_task(worker.train()) for worker in (well, hanging)]
    submission = asyncio.create_task(dispatcher.client.submit(job.name, [samples(8, seed=seed) for seed in range(4)]))
    cause = r"the job stands still: iteration 1 is not trained, it waits for worker edge-1 \(slot \d\) in phase idle"
    state = await state_when(dispatcher.client, lambda state: state.standstill != "")
    assert (state.phase, state.iterations_confirmed) == (JobPhase.RUNNING, 1)
    assert gauge() >= 1
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FAILED)
    for task in (*training, submission):
        task.cancel()
    await asyncio.gather(*training, submission, return_exceptions=True)
    assert re.fullmatch(cause + r" for \d+ s \(the limit is ESD_DISPATCHER_STANDSTILL_SECONDS\)", state.failure)
    assert any(re.search(cause, record.getMessage()) for record in caplog.records if record.levelname == "WARNING")


async def test_a_pause_of_the_stream_is_no_standstill(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], server: str
) -> None:
    """The checkpoint of the pause comes after the limit; it and the iterations are the last that happens."""
    dispatcher = await start_dispatcher(standstill_warning_seconds=1, standstill_seconds=3)
    job = job_with(parameter_servers=(server,), checkpoint_seconds=4.5)
    await dispatcher.client.create_job(job)
    covered = asyncio.Event()

    async def pausing() -> AsyncIterator[SampleBatch]:
        yield samples(8)
        await covered.wait()
        yield samples(8, seed=1)

    async with asyncio.TaskGroup() as tasks:
        for name in ("edge-0", "edge-1"):
            tasks.create_task(dispatcher.worker(name).train())
        tasks.create_task(dispatcher.client.submit(job.name, pausing()))
        state = await state_when(dispatcher.client, lambda state: state.checkpoint == 1)
        assert (state.standstill, gauge()) == ("", 0.0)
        covered.set()
    state = await dispatcher.client.describe()
    assert (state.phase, state.iterations_confirmed) == (JobPhase.FINISHED, 2)
