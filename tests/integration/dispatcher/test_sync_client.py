"""The blocking client and the example, against a real dispatcher."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership
from esd.services.domain.reports import Lease
from esd.services.domain.state import JobPhase
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.simple_clients import flush_report_of, job_with, registration, report_of, samples

ROOT = Path(__file__).parents[3]
COSTS = np.array([[1, 5], [2, 9]], np.int32)
ONE_EACH = np.ones(2, np.int32)


def test_every_method_of_the_client_is_there() -> None:
    def public(cls: type) -> dict[str, list[tuple[object, ...]]]:
        """The arguments of each method, with their kinds and defaults."""
        methods = {name: method for name, method in vars(cls).items() if not name.startswith("_")}
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in (methods | {"__init__": cls.__init__}).items()
        }

    of_loops_alone = {"attend_here"}
    in_a_loop = public(AsyncDispatcherClient)
    assert of_loops_alone <= in_a_loop.keys()
    assert public(DispatcherClient) == {name: each for name, each in in_a_loop.items() if name not in of_loops_alone}


async def blocking(dispatcher: Any, work: Any) -> Any:
    """Runs a program without an event loop beside the dispatcher."""

    def program() -> Any:
        with DispatcherClient(dispatcher.address) as client:
            return work(client)

    return await asyncio.to_thread(program)


async def test_hybrid_dis(dispatcher: Any) -> None:
    result = await blocking(dispatcher, lambda client: client.hybrid_dis(COSTS, ONE_EACH))
    assert result.assignment.tolist() == [1, 0]
    assert result.cost == 7


async def test_errors_are_those_of_the_domain(dispatcher: Any) -> None:
    with pytest.raises(InvalidArgument, match="capacities"):
        await blocking(dispatcher, lambda client: client.hybrid_dis(COSTS, 2 * ONE_EACH))
    with pytest.raises(NotFound):
        await blocking(dispatcher, lambda client: list(client.attend(Lease("nobody", 1.0))))
    assert await blocking(dispatcher, lambda client: client.describe()) is None


def test_nobody_at_the_address() -> None:
    with DispatcherClient("127.0.0.1:1") as client, pytest.raises(Unavailable):
        client.describe()


async def test_a_whole_job_without_an_event_loop(dispatcher: Any) -> None:
    job = job_with(workers=1)

    def train(client: DispatcherClient) -> list[type]:
        assert client.create_job(job)
        lease = client.register(registration("edge-0"))
        batches = [samples(8, seed=seed) for seed in range(3)]
        submission = threading.Thread(target=client.submit, args=(job.name, batches))
        submission.start()
        seen = []
        with client.attend(lease) as attendance:
            for message in attendance:
                seen.append(type(message))
                match message:
                    case IterationPlan():
                        attendance.report(report_of(message))
                    case FlushPlan():
                        attendance.report(flush_report_of(message))
        submission.join()
        assert client.describe().phase is JobPhase.FINISHED
        return seen

    assert await blocking(dispatcher, train) == [Membership, *[IterationPlan] * 3, FlushPlan, EndOfStream]


async def test_a_stream_that_is_not_read_to_its_end(dispatcher: Any) -> None:
    def glance(client: DispatcherClient) -> type:
        client.create_job(job_with(workers=1))
        lease = client.register(registration("edge-0"))
        with client.attend(lease) as attendance:
            return type(next(iter(attendance)))

    assert await blocking(dispatcher, glance) is Membership
    assert "esd-dispatcher-client" not in {thread.name for thread in threading.enumerate()}


def test_closing_twice_is_fine() -> None:
    client = DispatcherClient("127.0.0.1:1")
    client.close()
    client.close()
    with pytest.raises(FailedPrecondition, match="this client is closed"):
        client.describe()


@pytest.fixture
async def secured(certificates: Certificates) -> AsyncIterator[str]:
    settings = DispatcherSettings(metrics_port=None, grace_seconds=1.0, **certificates.of("service", token=True))
    async with serve_dispatcher(settings) as served:
        yield served.address


async def test_tls_and_token(secured: str, certificates: Certificates) -> None:
    settings = ClientSettings(tls_ca=certificates.authority, token_file=certificates.token)

    def ask() -> float:
        with DispatcherClient(secured, credentials=Credentials.read(settings)) as client:
            return client.hybrid_dis(COSTS, ONE_EACH).cost

    assert await asyncio.to_thread(ask) == 7


async def example(*arguments: object) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.hybrid_dis", *map(str, arguments),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


async def test_the_example(dispatcher: Any, secured: str, certificates: Certificates) -> None:
    tls = ("--ca", certificates.authority, "--token-file", certificates.token)
    for said in (await example(dispatcher.address), await example(secured, *tls)):
        gain = re.search(r"([\d.]+) times as much", said)
        assert gain is not None
        assert float(gain[1]) > 1.3
        assert "samples per worker: [256, 256, 256, 256]" in said


def test_the_example_needs_the_contract_alone() -> None:
    text = (ROOT / "examples" / "hybrid_dis.py").read_text()
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    assert set(imported) == {"__future__", "argparse", "pathlib", "grpc", "numpy", "esd"}
    assert re.findall(r"^from (esd\S*)", text, re.MULTILINE) == ["esd.protos"]


def test_the_documented_bytes_are_right() -> None:
    text = (ROOT / "docs" / "clients.md").read_text()
    assert base64.b64encode(COSTS.tobytes()).decode() in text
    assert base64.b64encode(ONE_EACH.tobytes()).decode() in text
