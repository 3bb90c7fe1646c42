"""Parameter servers on free ports."""

from contextlib import AsyncExitStack

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from tests.support.ps_client import Client
from tests.support.stores import PATIENCE_SECONDS


@pytest.fixture
async def start():
    """Starts servers with the given settings, in this process, and returns a client of each."""
    async with AsyncExitStack() as stack:

        async def started(**settings):
            patient = {"store_timeout_seconds": PATIENCE_SECONDS} | settings
            settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, **patient)
            server = await stack.enter_async_context(parameter_server(settings))
            return await stack.enter_async_context(Client(server.address))

        yield started


@pytest.fixture(params=["memory", "directory", "objects", "redis", "valkey"])
def any_store(request):
    """Settings of a server, for each kind of store."""
    if request.param in ("redis", "valkey"):
        return {"store": request.getfixturevalue(f"{request.param}_url")}
    places = {"directory": "tmp_path", "objects": "s3_url"}
    return {"checkpoint_dir": request.getfixturevalue(places[request.param])} if request.param in places else {}


@pytest.fixture
async def client(start):
    """A client of a server with an empty table over the memory store."""
    client = await start()
    assert await client.create_table()
    return client
