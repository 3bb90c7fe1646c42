"""Every service with TLS, client certificates and a token: it trains as in the clear, and keeps its secrets."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.run.driver import drive
from esd.run.export import export_model
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.errors import Unauthenticated
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.state import JobPhase
from esd.services.domain.sync import OnDemand
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.runtime.channel import channel
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.simple_clients import samples

SERVICES = {"ps": "esd.ps_server", "dispatcher": "esd.dispatcher", "worker": "esd.worker"}


class Services:
    """Service processes of one deployment; their logs are kept."""

    def __init__(self, certificates: Certificates, logs: Path) -> None:
        self._certificates = certificates
        self._logs = logs
        self.running: list[asyncio.subprocess.Process] = []

    async def start(self, service: str, **settings: object) -> str:
        """Starts a service with debug logs and every security setting, and returns its address."""
        secured = self._certificates.of("service" if service == "ps" else service, token=True)
        defaults = {"tls_clients": "*", "log_level": "debug", "metrics_port": "none"}
        prefix = f"ESD_{service}".upper()
        settings = {**secured, **defaults, **settings}
        with (self._logs / f"{len(self.running)}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", SERVICES[service],
                env=os.environ | {f"{prefix}_{name}".upper(): str(value) for name, value in settings.items()},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )  # fmt: skip
        self.running.append(process)
        return str(json.loads(await process.stdout.readline())["address"])

    async def start_worker(self, dispatcher: str, slot: int, **settings: object) -> None:
        await self.start("worker", name=f"worker-{slot}", dispatcher=dispatcher, link=1e9, cache_rows=100, **settings)

    def logs(self) -> str:
        return "".join(path.read_text() for path in self._logs.glob("*.log"))


@pytest.fixture
async def services(certificates: Certificates, tmp_path: Path) -> AsyncIterator[Services]:
    started = Services(certificates, tmp_path)
    yield started
    for process in started.running:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def described(address: str, credentials: Credentials) -> AsyncIterator[pb.DescribeJobResponse]:
    async with channel(address, credentials=credentials) as to_dispatcher:
        yield await dispatcher_pb2_grpc.DispatcherStub(to_dispatcher).DescribeJob(pb.DescribeJobRequest())


async def test_a_secured_system_trains(services: Services, certificates: Certificates, tmp_path: Path) -> None:
    server = await services.start("ps")
    dispatcher = await services.start("dispatcher")
    # One is reached at an address that its certificate has not, and the other knows it by a name that it has.
    await asyncio.gather(
        services.start_worker(dispatcher, 0, listen="127.0.0.2:0"),
        services.start_worker(dispatcher, 1, tls_peer_name="worker"),
    )
    job = JobSpec(
        name="secured", workers=2, features=numbered_ids(3), dense_features=1, batch_size=8, workloads=(4, 4),
        mechanism="esd", policy="emark", seed=7, window=2,
        tables=(TableSpec("embeddings", 4, OptimizerSpec(), 7, 0.1),), model=ModelSpec("wdl", (8,), OptimizerSpec()),
        parameter_servers=(server,), sync=OnDemand(direct=True), dense_sum=ServerSum(),
    )  # fmt: skip
    user = Credentials.read(ClientSettings(**certificates.of("client", token=True)))
    async with AsyncDispatcherClient(dispatcher, credentials=user) as client, asyncio.timeout(110):
        state = await drive(client, job, [samples(40)])
    assert (state.phase, state.iterations_confirmed) == (JobPhase.FINISHED, 5)
    assert any(worker.transfers.direct_push for worker in state.workers), "workers reach each other, too"
    await export_model(job, tmp_path / "model", user, graphs=False)

    async with described(dispatcher, user) as description:
        shown = f"{description} {services.logs()}"
    assert "worker-1" in shown
    assert not any(secret in shown for secret in certificates.secrets())


async def test_a_worker_with_a_wrong_token_ends_and_says_why(
    services: Services, certificates: Certificates, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong-token"
    wrong.write_text("close-sesame-1147")
    dispatcher = await services.start("dispatcher")
    await services.start_worker(dispatcher, 0, token_file=wrong)
    worker = services.running[-1]
    async with asyncio.timeout(110):
        assert await worker.wait() == 1
    logs = services.logs()
    assert "error: the call carries a wrong token" in logs
    assert "ESD_<SERVICE>_TOKEN_FILE" in logs
    assert logs.count("call refused: the call carries a wrong token") == 1, "the dispatcher logs it, once"
    assert not any(secret in logs for secret in [*certificates.secrets(), "close-sesame-1147"])


async def test_the_command_uses_the_users_credentials(services: Services, certificates: Certificates) -> None:
    dispatcher = await services.start("dispatcher")
    settings = certificates.of("client", token=True)
    environment = {f"ESD_CLIENT_{name}".upper(): str(value) for name, value in settings.items()}
    for variables, text in ((environment, "has no job yet"), ({}, "Socket closed")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "esd.cli", "status", "--dispatcher", dispatcher,
            env=os.environ | {"COLUMNS": "1000"} | variables,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        assert process.returncode == 1
        assert text in said.decode()


async def test_without_a_token_nothing_is_described(services: Services, certificates: Certificates) -> None:
    dispatcher = await services.start("dispatcher")
    stranger = Credentials.read(ClientSettings(**certificates.of("client")))
    async with AsyncDispatcherClient(dispatcher, credentials=stranger) as client:
        with pytest.raises(Unauthenticated, match="carries no token"):
            await client.describe()
