"""Jobs that end early: cancelled by a call, by the end of their driver, or for lack of a driver."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from itertools import repeat
from types import SimpleNamespace

import pytest

from esd.dispatcher.service.run import submit
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, NotFound
from esd.services.domain.plans import Membership
from esd.services.domain.state import JobPhase, JobState
from tests.support.clock import Clock
from tests.support.command import esd
from tests.support.simple_clients import JOB, Dispatcher, Worker, job_with, run_to_the_end, samples, state_when


async def test_a_cancelled_job_tells_everybody_the_reason_and_makes_room(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    workers = [Worker(dispatcher.client, name) for name in ("a", "b")]
    for worker in workers:
        await worker.register()
    watching = workers[0].watch()
    second = workers[1].watch()
    waiting = asyncio.create_task(anext(second))
    assert isinstance(await anext(watching), Membership)
    await waiting
    with DispatcherClient(dispatcher.address) as client:
        assert await asyncio.to_thread(client.cancel_job, JOB.name, "the data set is wrong")
        assert not await asyncio.to_thread(client.cancel_job, JOB.name, "once more")
    text = "job flights failed: it was cancelled: the data set is wrong"
    for stream in (watching, second):
        with pytest.raises(FailedPrecondition, match=text):
            await anext(stream)
    with pytest.raises(FailedPrecondition, match=text):
        await dispatcher.client.submit(JOB.name, [samples(8)])
    state = await dispatcher.client.describe()
    assert (state.phase, state.failure) == (JobPhase.FAILED, "it was cancelled: the data set is wrong")
    await run_to_the_end(dispatcher, job_with(seed=8), [samples(20)])


async def test_only_the_job_that_is_named_is_cancelled(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound, match="no job yet"):
        await dispatcher.client.cancel_job("flights", "")
    await dispatcher.client.create_job(JOB)
    with pytest.raises(NotFound, match="no job 'criteo'; job flights is waiting"):
        await dispatcher.client.cancel_job("criteo", "")
    assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS


async def test_the_command_cancels_what_runs(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    ended = await asyncio.to_thread(esd, "cancel", "--dispatcher", dispatcher.address, "--reason", "make room")
    assert ended.returncode == 0, ended.stderr
    assert "job flights is cancelled" in ended.stderr
    assert (await dispatcher.client.describe()).failure == "it was cancelled: make room"


async def test_a_driver_that_is_stopped_cancels_its_job(dispatcher: Dispatcher) -> None:
    polled = asyncio.Event()
    driving = asyncio.create_task(
        drive(dispatcher.client, JOB, repeat(samples(8)), on_progress(lambda _: polled.set()))
    )
    await asyncio.wait_for(polled.wait(), 60)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert (await dispatcher.client.describe()).failure == "it was cancelled: its driver was stopped"


async def test_a_driver_whose_stream_cannot_be_read_cancels_its_job(dispatcher: Dispatcher) -> None:
    def broken() -> Iterator[SampleBatch]:
        yield samples(8)
        raise ValueError("line 9 is no sample")

    class Stream:
        def __iter__(self) -> Iterator[SampleBatch]:
            return broken()

    with pytest.raises(ValueError, match="line 9"):
        await drive(dispatcher.client, JOB, Stream())
    assert (
        await dispatcher.client.describe()
    ).failure == "it was cancelled: its driver cannot go on: line 9 is no sample"


async def test_a_second_driver_that_is_refused_leaves_the_job_alone(dispatcher: Dispatcher) -> None:
    first = asyncio.create_task(drive(dispatcher.client, JOB, repeat(samples(8))))
    await state_when(dispatcher.client, lambda state: state.samples_submitted > 0)
    with pytest.raises(FailedPrecondition, match="another Submit call feeds job flights"):
        await drive(dispatcher.client, JOB, repeat(samples(8)))
    assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_ctrl_c_cancels_the_job_of_running_services(dispatcher: Dispatcher) -> None:
    """As a process: the signal reaches the command alone."""
    command = [
        sys.executable,
        "-m",
        "esd.cli",
        "train",
        "--data",
        "synthetic:zipf?fields=3&keys=100",
        "--iterations=999",
    ]
    running = await asyncio.create_subprocess_exec(
        *command, "--dispatcher", dispatcher.address, "--parameter-servers", "127.0.0.1:1", "--checkpoint-every", "0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await _until_submitting(dispatcher)
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.communicate(), 110)
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert running.returncode
    assert (await dispatcher.client.describe()).failure == "it was cancelled: its driver was stopped"


async def _until_submitting(dispatcher: Dispatcher) -> JobState:
    """Waits for a job, too."""
    async with asyncio.timeout(110):
        while (state := await dispatcher.client.describe()) is None or not state.samples_submitted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return state


async def test_a_job_without_a_driver_ends_after_a_limit(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]],
) -> None:
    dispatcher = await start_dispatcher(driver_seconds=0.5, page_port=0)
    await dispatcher.client.create_job(JOB)
    async with asyncio.timeout(60):
        while True:  # the page is no driver
            shown = json.loads(await asyncio.to_thread(_read, f"http://{dispatcher.page_address}/state.json"))["job"]
            if shown["failure"]:
                break
    assert shown["failure"] == (
        "no driver has submitted samples or asked for its state for 0.5 s (the limit is ESD_DISPATCHER_DRIVER_SECONDS)"
    )


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


async def test_a_job_goes_on_while_it_is_asked_for_or_fed_and_after_its_stream_has_ended(
    start_dispatcher: Callable[..., Awaitable[Dispatcher]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher = await start_dispatcher(driver_seconds=60, page_port=0)
    page = f"http://{dispatcher.page_address}/state.json"
    clock = Clock(lambda: asyncio.to_thread(_read, page))  # the page is no driver
    monkeypatch.setattr(submit, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    await dispatcher.client.create_job(JOB)
    for _ in range(3):
        await clock.forward(30)
        assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS
    may_end = asyncio.Event()

    async def slow():
        yield samples(8)
        await may_end.wait()

    submitting = asyncio.create_task(dispatcher.client.submit(JOB.name, slow()))
    await state_when(dispatcher.client, lambda state: state.samples_submitted == 8)
    await clock.forward(100)
    may_end.set()
    assert await submitting == 8
    await clock.forward(100)
    assert (await dispatcher.client.describe()).phase is JobPhase.WAITING_FOR_WORKERS
