"""A flush follows the reports of its iterations, and reports may come in bursts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership
from esd.services.domain.state import JobPhase
from tests.integration.dispatcher.checkpointed_job import start_job, submit
from tests.support.simple_clients import Dispatcher, Worker, cut, flush_report_of, report_of, samples


async def test_a_flush_before_the_reports_of_its_iterations_is_refused_and_the_job_continues(
    dispatcher: Dispatcher, server: str
) -> None:
    """The worker reports its two iterations after the refusal, repeats the flush, and the checkpoint is committed."""
    job, hasty, other = await start_job(dispatcher, server, window=6)
    others_end = asyncio.create_task(other.train())
    submission = submit(dispatcher, job, 4)
    held: list[IterationPlan] = []
    async for message in hasty.watch():
        match message:
            case Membership():
                hasty.membership = message
            case IterationPlan():
                held.append(message)
            case FlushPlan():
                assert hasty.membership is not None
                assert hasty.attendance is not None
                await cut(hasty.membership, message)
                if message.iteration == 2:
                    with pytest.raises(FailedPrecondition, match=r"flush of iteration 2 and reported 0 iterations"):
                        await hasty.attendance.report(flush_report_of(message))
                for plan in held:
                    await hasty.attendance.report(report_of(plan))
                held.clear()
                await hasty.attendance.report(flush_report_of(message))
        if len(held) == 2 and held[0].iteration == 2:  # the flush of the end follows these reports
            for plan in held:
                await hasty.attendance.report(report_of(plan))
            held.clear()
    await asyncio.gather(submission, others_end)
    state = await dispatcher.client.describe()
    assert state is not None
    assert (state.phase, state.iterations_confirmed, state.checkpoint) == (JobPhase.FINISHED, 4, 4)


class BurstyWorker(Worker):
    """Reports its plans in bursts: when it has so many, or no message has come for a while, and before a flush."""

    burst: int = 1

    async def train_epoch(self) -> None:
        held: list[IterationPlan] = []

        async def report_all() -> None:
            for plan in held:
                await self.report(plan)
            held.clear()

        attendance = await self.attend()
        while True:
            coming = asyncio.ensure_future(anext(attendance, None))
            if not (await asyncio.wait([coming], timeout=_QUIET_SECONDS))[0]:
                await report_all()
            match message := await coming:
                case Membership():
                    self.membership = message
                case IterationPlan():
                    held.append(message)
                    if len(held) == self.burst:
                        await report_all()
                case FlushPlan():
                    await report_all()
                    await self.flushed(message)
                case EndOfStream():
                    self.end = message
                    return


_QUIET_SECONDS = 0.03


@pytest.mark.parametrize("seed", range(6))
async def test_bursts_of_reports_in_a_stream_that_pauses_hold_no_job_up(
    dispatcher: Dispatcher, server: str, seed: int
) -> None:
    """Two workers report in bursts of other sizes, up to the window, while samples come in bursts, too."""
    rng = random.Random(seed)
    job, *_ = await start_job(dispatcher, server, window=6, checkpoint_every=10)

    async def source() -> AsyncIterator[SampleBatch]:
        for number in range(12):
            yield samples(rng.randrange(1, 32), seed=number)
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice((0, 2 * _QUIET_SECONDS)))

    workers = [BurstyWorker(dispatcher.client, name) for name in ("edge-0", "edge-1")]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for worker in workers:
            worker.burst = rng.randrange(1, 8)
            tasks.create_task(worker.train())
        submission = tasks.create_task(dispatcher.client.submit(job.name, source()))
    state = await dispatcher.client.describe()
    assert state is not None
    assert (state.phase, state.samples_submitted) == (JobPhase.FINISHED, submission.result())
    for worker in workers:
        await worker.leave()
