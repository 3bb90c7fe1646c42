"""A few hundred malformed requests to every service, lies to a running job, and jobs that are told something wrong.

`python -m hardening.fuzz` sends many more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.runtime.channel import channel
from esd.services.runtime.server import serve
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link
from esd.worker.service.servicer import SERVICE, WorkerService, add_to_server
from esd.worker.service.settings import WorkerSettings
from hardening.fuzz import targets
from hardening.fuzz.attended import train_beside_a_liar
from hardening.fuzz.campaign import MAX_MESSAGE_BYTES, campaign
from hardening.fuzz.delivered import train_beside_a_stranger
from hardening.fuzz.liar import Lies
from hardening.fuzz.targets import Target
from hardening.fuzz.told import tell
from hardening.fuzz.wrongs import wrongs

COMMON = {"metrics_port": None, "grace_seconds": 0, "max_request_bytes": MAX_MESSAGE_BYTES}

PLAIN = {"metrics_port": None, "grace_seconds": 0}
PLAIN_SERVER, PLAIN_DISPATCHER = ParameterServerSettings(**PLAIN), DispatcherSettings(**PLAIN, lease_seconds=20)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def start_parameter_server(stack: AsyncExitStack) -> Target:
    server = await stack.enter_async_context(parameter_server(ParameterServerSettings(**COMMON)))
    return targets.parameter_server(
        "ps_server", server.address, await stack.enter_async_context(channel(server.address))
    )


async def start_dispatcher(stack: AsyncExitStack) -> Target:
    settings = DispatcherSettings(**COMMON, lease_seconds=60, join_seconds=1)
    server = await stack.enter_async_context(serve_dispatcher(settings))
    return targets.dispatcher(server.address, await stack.enter_async_context(AsyncDispatcherClient(server.address)))


async def start_worker(stack: AsyncExitStack) -> Target:
    settings = WorkerSettings(**COMMON, name="worker", dispatcher="127.0.0.1:1", link=1e9, cache_rows=64)
    service = WorkerService(settings)
    service.deliveries.begin(Inbox(0, 1, 1, (targets.TABLE,), within=0.05), Link(1e9, shape=False))
    server = await stack.enter_async_context(serve("worker", [(add_to_server, service, SERVICE)], settings))
    return targets.worker(server.address, await stack.enter_async_context(channel(server.address)))


@pytest.mark.parametrize(
    ("start", "count"), [(start_parameter_server, 360), (start_dispatcher, 240), (start_worker, 48)]
)
def test_malformed_requests_are_refused_and_harm_nobody(runner, caplog, start, count):
    stack = AsyncExitStack()
    target = runner.run(start(stack))
    try:
        with caplog.at_level(logging.ERROR):
            tally = campaign(runner, target, count=count, number=1, until=time.monotonic() + 240)
    finally:
        runner.run(stack.aclose())
    assert tally.sent >= count
    assert not [record for record in caplog.records if "internal error" in record.message]


async def test_a_worker_that_lies_is_refused_and_the_model_is_that_of_one_machine(tmp_path, caplog):
    lies = Lies.drawn(200, 1, per_message=5, failures=1)
    async with parameter_server(PLAIN_SERVER) as server, serve_dispatcher(PLAIN_DISPATCHER) as dispatcher:
        state = await train_beside_a_liar(dispatcher.address, server.address, tmp_path, lies, iterations=30)
    assert lies.told > 500
    assert [recovery.cause for recovery in state.recoveries] == ["worker w-1 (slot 1) cannot go on: fuzzed"]
    assert not [record for record in caplog.records if "internal error" in record.message]


async def test_rows_of_a_stranger_are_refused_and_the_model_is_that_of_one_machine(tmp_path, caplog):
    async with parameter_server(PLAIN_SERVER) as server, serve_dispatcher(PLAIN_DISPATCHER) as dispatcher:
        answers = await train_beside_a_stranger(
            dispatcher.address, server.address, tmp_path, iterations=300, count=600, number=1
        )
    assert answers["FAILED_PRECONDITION"] > 50, "rows of the job that no plan knows"
    assert answers["INVALID_ARGUMENT"] > 5
    assert not [record for record in caplog.records if "internal error" in record.message]


async def test_who_is_told_something_wrong_says_so_and_what_comes_next_works(tmp_path):
    async with parameter_server(PLAIN_SERVER) as server, serve_dispatcher(PLAIN_DISPATCHER) as dispatcher:
        told = await tell(dispatcher.address, server.address, tmp_path, wrongs(12, number=1))
    assert told.outcomes.total() == 13
    assert told.twisted.total() > 6
