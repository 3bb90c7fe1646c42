"""A real dispatcher on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from tests.support.simple_clients import Dispatcher


@pytest.fixture
async def start_dispatcher() -> AsyncIterator[Callable[..., Awaitable[Dispatcher]]]:
    """Starts dispatchers; a long lease unless the test is about leases."""
    async with AsyncExitStack() as tests_end:

        async def start(**settings: object) -> Dispatcher:
            defaults = {"metrics_port": None, "lease_seconds": 60.0, "grace_seconds": 1.0}
            running = AsyncExitStack()
            tests_end.push_async_callback(running.aclose)
            server = await running.enter_async_context(serve_dispatcher(DispatcherSettings(**(defaults | settings))))
            client = await tests_end.enter_async_context(AsyncDispatcherClient(server.address))
            started = Dispatcher(server.address, client, running.aclose, server.page_address)
            tests_end.push_async_callback(started.dismiss)
            return started

        yield start


@pytest.fixture
async def dispatcher(start_dispatcher: Callable[..., Awaitable[Dispatcher]]) -> Dispatcher:
    return await start_dispatcher()


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """The address of a parameter server."""
    async with parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as served:
        yield served.address
