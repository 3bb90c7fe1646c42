"""A worker may put and get its dense parameters of checkpoints. Calls that undo are the dispatcher's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import PermissionDenied
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.ps_client import Client

CUT = 4


@pytest.fixture
async def connect(certificates: Certificates) -> AsyncIterator[Callable[[str], Client]]:
    """Connects to a parameter server with the certificate of a name."""
    settings = ParameterServerSettings(
        metrics_port=None, grace_seconds=0, tls_clients="*", **certificates.of("service")
    )
    async with parameter_server(settings) as server, AsyncExitStack() as connections:

        def connected(name: str) -> Client:
            shown = Credentials.read(ClientSettings(**certificates.of(name)))
            client = Client(server.address, credentials=shown)
            connections.push_async_callback(client.close)
            return client

        yield connected


async def test_a_worker_puts_and_gets_the_dense_part_and_no_other(connect: Callable[[str], Client]) -> None:
    worker, dispatcher = connect("worker"), connect("dispatcher")
    await worker.create_table()
    await worker.put_part(CUT, "dense", b"parameters", epoch=0)
    assert await worker.get_part(CUT, "dense") == b"parameters"
    await dispatcher.put_part(CUT, "engine", b"state", epoch=0)
    refusal = r"only the dispatcher stores and reads part 'engine' .*, and the certificate worker has the roles worker"
    with pytest.raises(PermissionDenied, match=refusal):
        await worker.put_part(CUT, "engine", b"another", epoch=0)
    with pytest.raises(PermissionDenied, match=refusal):
        await worker.get_part(CUT, "engine")
    assert await dispatcher.get_part(CUT, "engine") == b"state"
    assert await dispatcher.get_part(CUT, "dense") == b"parameters"


async def test_no_worker_and_no_driver_takes_a_table_back(connect: Callable[[str], Client]) -> None:
    worker, driver, dispatcher = connect("worker"), connect("client"), connect("dispatcher")
    await worker.create_table()
    for client, role in ((worker, "worker"), (driver, "driver")):
        with pytest.raises(PermissionDenied, match=f"Restore is for the roles dispatcher, .* is of {role}"):
            await client.restore(0, epoch=1)
        with pytest.raises(PermissionDenied, match=f"BeginEpoch is for the roles dispatcher, .* is of {role}"):
            await client.begin_epoch(1, takes_over=True)
    await dispatcher.restore(0, epoch=1)
    assert (await driver.get_checkpoint()).epoch == 1


async def test_a_driver_reads_the_model_and_changes_nothing(connect: Callable[[str], Client]) -> None:
    worker, driver = connect("worker"), connect("driver")
    await worker.create_table()
    await worker.put_dense(b"model")
    assert await driver.get_dense() == b"model"
    assert [block async for block in driver.scan()] == []
    for call in (driver.put_dense(b"mine"), driver.create_table(), driver.put_part(CUT, "dense", b"mine", epoch=0)):
        with pytest.raises(PermissionDenied, match="is of driver"):
            await call
