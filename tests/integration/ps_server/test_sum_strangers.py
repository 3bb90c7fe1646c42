"""A process without the certificate, the token and the role of a worker gives no gradient, and the workers go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import EsdError, PermissionDenied, Unauthenticated, Unavailable
from esd.services.domain.sum_pieces import SumMember
from esd.services.runtime import metrics
from esd.services.runtime.retry import repeated
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.ps_client import Client
from tests.support.sums import RawSums, member, sums

ONES = np.ones(3, np.float32)
SHOWN: dict[str, tuple[Callable[[Certificates, Path], dict[str, Any]], type[EsdError], str | None]] = {
    "plaintext": (lambda _, __: {}, Unavailable, None),
    "no certificate": (lambda own, _: {"tls_ca": own.authority, "token_file": own.token}, Unavailable, None),
    "no token": (lambda own, _: own.of("worker"), Unauthenticated, "carries no token"),
    "wrong token": (lambda own, wrong: own.of("worker") | {"token_file": wrong}, Unauthenticated, "a wrong token"),
    "a driver": (lambda own, _: own.of("driver", token=True), PermissionDenied, "Sum is for the roles worker"),
    "a dispatcher": (lambda own, _: own.of("dispatcher", token=True), PermissionDenied, "Sum is for the roles worker"),
}


class Deployment:
    """A secured server, and clients of it."""

    def __init__(self, address: str, stack: AsyncExitStack) -> None:
        self._address = address
        self._stack = stack

    def connect(self, shown: dict[str, Any]) -> Client:
        credentials = Credentials.read(ClientSettings(**shown)) if shown else PLAINTEXT
        client = Client(self._address, credentials=credentials)
        self._stack.push_async_callback(client.close)
        return client

    async def sums(self, client: Client, introduced: SumMember) -> RawSums:
        return await self._stack.enter_async_context(sums(client.channel, introduced))

    async def give_gradient(self, client: Client) -> None:
        stream = await self.sums(client, member(1))
        await stream.send_vector(ONES)
        await stream.ended()


@pytest.fixture
async def deployment(certificates: Certificates) -> AsyncIterator[Deployment]:
    settings = ParameterServerSettings(
        metrics_port=None, grace_seconds=0, tls_clients="*", **certificates.of("service", token=True)
    )
    async with parameter_server(settings) as server, AsyncExitStack() as stack:
        yield Deployment(server.address, stack)


def received() -> float:
    return metrics.SUM_BYTES.labels("received")._value.get()


@pytest.mark.parametrize("kind", SHOWN)
async def test_a_stranger_gives_no_gradient_and_the_workers_go_on(
    deployment: Deployment, certificates: Certificates, tmp_path: Path, kind: str
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("close-sesame-1147\n")
    shown, error, text = SHOWN[kind]
    worker = deployment.connect(certificates.of("worker", token=True))
    await worker.create_table()
    first = await deployment.sums(worker, member(0))
    before = received()
    stranger = deployment.connect(shown(certificates, wrong))
    with pytest.raises(error, match=text):  # gRPC may lose the status of a call whose client writes
        await repeated(lambda: deployment.give_gradient(stranger), 0 if error is Unavailable else 20)
    assert received() == before
    second = await deployment.sums(worker, member(1))
    for stream in (first, second):
        assert await stream.joined() == 0
        await stream.send_vector(ONES)
    assert [(await stream.read_vector(3)).tolist() for stream in (first, second)] == 2 * [[2.0] * 3]
    assert received() - before > 2 * ONES.nbytes
