"""A worker in an event loop that its steps block: its stream and heartbeats are in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError, FailedPrecondition, NotFound, Unavailable
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage
from esd.services.domain.reports import FlushReport, Lease, TransferCounts
from esd.services.domain.state import JobPhase
from tests.support.simple_clients import Dispatcher, flush_report_of, job_with, registration, report_of, samples
from tests.support.simple_clients import state_when as state_when_

Start = Callable[..., Awaitable[Dispatcher]]
JOB = job_with(workers=1)
BATCHES = 3


async def aside(program: Coroutine[Any, Any, Any]) -> Any:
    """Runs a program in an event loop of its own, which may block without blocking the dispatcher."""
    return await asyncio.to_thread(asyncio.run, program)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def train(address: str, method: str, blocked_seconds: float) -> list[type[PlanMessage]]:
    """A job of one worker whose first step blocks the event loop; returns the messages of the worker."""
    seen = []
    async with AsyncDispatcherClient(address) as client:
        await client.create_job(JOB)
        lease = await client.register(registration("edge-0"))
        submission = asyncio.create_task(client.submit(JOB.name, [samples(8, seed=seed) for seed in range(BATCHES)]))
        try:
            async with getattr(client, method)(lease) as attendance:
                async for message in attendance:
                    seen.append(type(message))
                    match message:
                        case IterationPlan():
                            if message.iteration == 0:
                                time.sleep(blocked_seconds)  # noqa: ASYNC251 - as a step of torch does
                            await attendance.report(report_of(message))
                        case FlushPlan():
                            await attendance.report(flush_report_of(message))
        finally:
            await asyncio.gather(submission, return_exceptions=True)
    return seen


async def test_a_step_that_blocks_the_loop_for_four_leases_loses_no_job(start_dispatcher: Start) -> None:
    dispatcher = await start_dispatcher(lease_seconds=1.0)
    seen = await aside(train(dispatcher.address, "attend", blocked_seconds=4.0))
    assert seen == [Membership, *[IterationPlan] * BATCHES, FlushPlan, EndOfStream]
    assert (await dispatcher.client.describe()).phase is JobPhase.FINISHED
    assert "esd-attendance" not in threads()


async def test_the_same_step_loses_a_stream_that_is_in_the_loop(start_dispatcher: Start) -> None:
    dispatcher = await start_dispatcher(lease_seconds=1.0)
    with pytest.raises(EsdError, match="sent no heartbeat for 1 s"):
        await aside(train(dispatcher.address, "attend_here", blocked_seconds=4.0))


async def test_a_caller_whose_loop_is_closed_keeps_no_lease(start_dispatcher: Start) -> None:
    dispatcher = await start_dispatcher(lease_seconds=0.5)
    await dispatcher.client.create_job(JOB)

    async def leave_without_a_word() -> object:
        client = AsyncDispatcherClient(dispatcher.address)
        attendance = client.attend(await client.register(registration("edge-0")))
        assert isinstance(await anext(await attendance.__aenter__()), Membership)
        return client, attendance

    left = await aside(leave_without_a_word())
    state = await state_when_(dispatcher.client, lambda state: state.phase is JobPhase.FAILED)
    assert "worker edge-0 (slot 0) sent no heartbeat" in state.failure
    del left


async def test_a_closed_client_ends_the_iteration_and_fails_the_reports(dispatcher: Dispatcher) -> None:
    client = AsyncDispatcherClient(dispatcher.address)
    await client.create_job(JOB)
    attendance = await client.attend(await client.register(registration("edge-0"))).__aenter__()
    assert isinstance(await anext(attendance), Membership)
    await client.close()
    for _ in range(2):
        with pytest.raises(Unavailable, match="the worker has closed its stream"):
            await anext(attendance)
    with pytest.raises(Unavailable, match="the worker has closed its stream"):
        await attendance.report(FlushReport(0, TransferCounts(), 0))
    assert "esd-attendance" not in threads()


async def test_errors_reach_the_caller(dispatcher: Dispatcher) -> None:
    client = dispatcher.client
    await client.create_job(JOB)
    with pytest.raises(NotFound, match="no lease 'another'"):
        async with client.attend(Lease("another", 1.0)) as attendance:
            await anext(attendance)
    async with client.attend(await client.register(registration("edge-0"))) as attendance:
        membership = await anext(attendance)
        assert isinstance(membership, Membership)
        with pytest.raises(FailedPrecondition, match="flush"):
            await attendance.report(FlushReport(7, TransferCounts(), membership.epoch))
