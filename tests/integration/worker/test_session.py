"""A session of one's own: a loop that blocks keeps its lease, one that fails tells the job why, and one may be left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import torch

import esd
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.tasks import run_in
from esd.services.runtime.threads import named_threads
from esd.testing import JOB
from esd.testing.job import samples
from examples.own_loop import new_net
from tests.support.simple_clients import state_when

LEASE_SECONDS = 1.0
NOTHING_ELSE = {"metrics_port": None, "grace_seconds": 0}


@asynccontextmanager
async def open_job() -> AsyncIterator[tuple[esd.AsyncDispatcherClient, str]]:
    """A job of one worker and 4 iterations, without checkpoints: it fails with the first lost worker."""
    settings = DispatcherSettings(**NOTHING_ELSE, lease_seconds=LEASE_SECONDS)
    async with (
        parameter_server(ParameterServerSettings(**NOTHING_ELSE)) as server,
        serve_dispatcher(settings) as dispatcher,
        esd.AsyncDispatcherClient(dispatcher.address) as client,
    ):
        changes = {"workers": 1, "workloads": (JOB.batch_size,), "checkpoint_every": 0}
        job = replace(JOB, parameter_servers=(server.address,), **changes)
        await client.create_job(job)
        submission = asyncio.create_task(client.submit(job.name, [samples()[: 4 * job.batch_size]]))
        yield client, dispatcher.address
        submission.cancel()
        await asyncio.gather(submission, return_exceptions=True)


def session_of(address: str) -> esd.Session:
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    given = {"name": "own", "link": "1g", "cache_rows": 200, "grace_seconds": 0}
    return esd.Session(address, model=net, optimizer=optimizer, **given)


def train(address: str, before: Callable[[esd.Session, esd.Step], object]) -> list[int]:
    """Trains, and returns the iterations that came."""
    found = []
    with session_of(address) as session:
        for step in session:
            found.append(step.iteration)
            before(session, step)
            outputs = step.model(step.embeddings, step.dense)
            losses = torch.nn.functional.binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
            step.backward(losses, scores=outputs.sigmoid())
            step.optimise()
    return found


async def trained(address: str, before: Callable[[esd.Session, esd.Step], object]) -> list[int]:
    with named_threads("train") as thread:
        return await run_in(thread, train, address, before)


async def test_a_loop_that_blocks_for_longer_than_its_lease_keeps_it() -> None:
    async with open_job() as (client, address):
        found = await trained(address, lambda _, step: time.sleep(3 * LEASE_SECONDS * (step.iteration == 1)))
        state = await client.describe()
    assert found == [0, 1, 2, 3]
    assert state is not None
    assert (state.phase, state.iterations_confirmed) == (esd.JobPhase.FINISHED, 4)


async def test_a_loop_that_fails_ends_the_job_with_its_own_words() -> None:
    def fail(_: esd.Session, step: esd.Step) -> None:
        if step.iteration == 2:
            raise ValueError("no such item")

    async with open_job() as (client, address):
        with pytest.raises(ValueError, match="no such item"):
            await trained(address, fail)
        state = await state_when(client, lambda state: state.phase is esd.JobPhase.FAILED)
    assert "the training loop fails in iteration 2: ValueError: no such item" in state.failure


async def test_a_session_that_is_closed_ends_its_iteration_and_its_threads() -> None:
    def close(session: esd.Session, step: esd.Step) -> None:
        if step.iteration == 2:
            session.close()

    async with open_job() as (_, address):
        assert await trained(address, close) == [0, 1, 2]
    assert "esd-session" not in {thread.name for thread in threading.enumerate()}


def test_settings_that_are_missing_are_named() -> None:
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(
        esd.errors.InvalidArgument, match=r"(?s)ESD_WORKER_NAME must be set.*ESD_WORKER_LINK must be set"
    ):
        esd.Session("127.0.0.1:1", model=net, optimizer=optimizer)
