"""The disk of the checkpoint directory takes nothing for a while: checkpoints fail by name, and training goes on."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import FailedPrecondition, StorageUnwritable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import FlushPlan
from esd.services.domain.state import JobPhase
from esd.services.runtime.retry import repeated
from tests.support.simple_clients import Dispatcher, Worker, cut, flush_report_of, job_with, samples, state_when

BATCHES = 14
StartDispatcher = Callable[..., Awaitable[Dispatcher]]


@dataclass
class Disk:
    """A disk that is full for as long as it is told."""

    full: bool = False

    def fsync(self, _: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TellingWorker(Worker):
    """Tells of a checkpoint that cannot be stored, as a real worker does; at the end it waits for room.

    It confirms no iteration from `held_at` on before the event `released`.
    """

    held_at: int = BATCHES
    released: asyncio.Event

    async def report(self, plan, **changes) -> None:
        if plan.iteration >= self.held_at:
            await self.released.wait()
        await super().report(plan, **changes)

    async def flushed(self, plan: FlushPlan) -> None:
        failure = ""
        assert self.membership is not None
        membership = self.membership
        try:
            await repeated(lambda: cut(membership, plan), 0 if plan.checkpoint else 60, on=StorageUnwritable)
        except StorageUnwritable as error:
            failure = str(error)
        await self.send(replace(flush_report_of(plan), failure=failure))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr("os.fsync", disk.fsync)
    return disk


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[str]:
    settings = ParameterServerSettings(checkpoint_dir=tmp_path / "kept", metrics_port=None, grace_seconds=0)
    async with parameter_server(settings) as served:
        yield served.address


async def start_job(dispatcher: Dispatcher, server: str, held_at: int) -> tuple[JobSpec, list[TellingWorker]]:
    """A job of two workers that wait before iteration `held_at`; its whole stream is logged."""
    job = job_with(parameter_servers=(server,), checkpoint_every=2, checkpoints_kept=1)
    await dispatcher.client.create_job(job)
    released = asyncio.Event()
    workers = [TellingWorker(dispatcher.client, f"edge-{slot}") for slot in range(2)]
    for worker in workers:
        worker.held_at, worker.released = held_at, released
        await worker.register()
    assert await dispatcher.client.submit(job.name, [samples(8, seed=seed) for seed in range(BATCHES)]) == 8 * BATCHES
    return job, workers


async def test_checkpoints_fail_by_name_training_goes_on_and_the_next_one_succeeds(
    start_dispatcher: StartDispatcher, server: str, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = await start_dispatcher(queued_batches=BATCHES)
    _, workers = await start_job(dispatcher, server, held_at=5)
    training = [asyncio.create_task(worker.train()) for worker in workers]
    await state_when(dispatcher.client, lambda state: state.checkpoint == 4 and state.iterations_confirmed == 5)
    disk.full = True
    released, again = workers[0].released, asyncio.Event()
    for worker in workers:
        worker.held_at, worker.released = 12, again
    released.set()
    # Three checkpoints fail meanwhile: before iterations 6, 8 and 10.
    state = await state_when(dispatcher.client, lambda state: state.iterations_confirmed == 12)
    assert (state.phase, state.checkpoint) == (JobPhase.RUNNING, 4)
    assert "checkpoint 6 could not be committed" in caplog.text
    assert "No space left on device; make room on the disk of the checkpoint directory" in caplog.text
    disk.full = False
    again.set()
    await asyncio.gather(*training)
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    assert (state.iterations_confirmed, state.checkpoint, len(state.recoveries)) == (BATCHES, BATCHES, 0)


async def test_samples_wait_for_room(
    start_dispatcher: StartDispatcher, server: str, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = await start_dispatcher()
    job = job_with(parameter_servers=(server,), checkpoint_every=2)
    await dispatcher.client.create_job(job)
    disk.full = True
    waiting = asyncio.create_task(dispatcher.client.submit(job.name, [samples(20)]))
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(60):
            while "the job waits up to 300 s for room" not in caplog.text:  # noqa: ASYNC110 - a log line
                await asyncio.sleep(0.01)
    assert (await dispatcher.client.describe()).samples_submitted == 0
    disk.full = False
    assert await waiting == 20


async def test_a_disk_that_stays_full_ends_the_job_by_name(
    start_dispatcher: StartDispatcher, server: str, disk: Disk
) -> None:
    dispatcher = await start_dispatcher(queued_batches=BATCHES, storage_seconds=0.01)
    _, workers = await start_job(dispatcher, server, held_at=5)
    training = [asyncio.create_task(worker.train()) for worker in workers]
    await state_when(dispatcher.client, lambda state: state.checkpoint == 4 and state.iterations_confirmed == 5)
    disk.full = True
    workers[0].released.set()
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FAILED)
    assert "checkpoints in a row could not be committed, the latest because " in state.failure
    assert state.failure.endswith(
        "No space left on device; make room on the disk of the checkpoint directory; the last checkpoint is 4"
    )
    for ended in await asyncio.gather(*training, return_exceptions=True):
        assert isinstance(ended, FailedPrecondition)
