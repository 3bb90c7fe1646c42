"""The wheel without compiled code: its files, and the calls that a client of it can make."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples
from tests.support.source_copy import ROOT, run_python

BUILD = "import sys; from scikit_build_core import build; print(build.build_wheel(sys.argv[1]))"
COSTS = np.random.default_rng(5).integers(1, 100, (40, 4)).astype(np.float32)
PROGRAM = """\
import sys
import numpy as np
import esd

with esd.DispatcherClient(sys.argv[1]) as dispatcher:
    costs = np.frombuffer(bytes.fromhex(sys.argv[2]), np.float32).reshape(-1, 4)
    print(*dispatcher.hybrid_dis(costs, [10] * 4).assignment)
    job = dispatcher.describe().job
    print(job.name, sum(moves.samples for plans in dispatcher.watch_plans(job.name, 0) for moves in plans.workers))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files, as they are installed."""
    folder = tmp_path_factory.mktemp("client")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, folder], cwd=ROOT, env=os.environ | {"ESD_CLIENT_ONLY": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    name = built.stdout.splitlines()[-1]
    assert name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(folder / name) as wheel:
        wheel.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
async def dispatcher() -> AsyncIterator[Dispatcher]:
    settings = DispatcherSettings(metrics_port=None, page_port=None, grace_seconds=0)
    async with serve_dispatcher(settings) as served, AsyncDispatcherClient(served.address) as of_tests:
        yield Dispatcher(served.address, of_tests, _never)


async def _never() -> None:
    raise AssertionError


def test_it_has_all_of_python_and_nothing_compiled(client: Path) -> None:
    there = {path.suffix for path in client.rglob("*") if path.is_file()}
    assert ".so" not in there
    assert (client / "esd" / "services" / "clients" / "dispatcher.py").is_file()
    assert sum(path.stat().st_size for path in client.rglob("*") if path.is_file()) < 10e6


async def test_a_program_calls_hybrid_dis_and_watches_plans(client: Path, dispatcher: Dispatcher) -> None:
    job = job_with(workers=2, batch_size=32, name="watched")
    await run_to_the_end(dispatcher, job, [samples(320, job=job)])
    program = client / "program.py"
    program.write_text(PROGRAM)
    ran = await _run(client, str(program), dispatcher.address, COSTS.tobytes().hex())
    assert ran.returncode == 0, ran.stderr
    expected = await dispatcher.client.hybrid_dis(COSTS, np.full(4, 10, np.uint32))
    assert ran.stdout.splitlines() == [" ".join(map(str, expected.assignment)), "watched 320"]
    state = await _run(client, "-m", "esd.cli", "status", "--dispatcher", dispatcher.address)
    assert "watched: finished" in state.stdout, state.stderr


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (("-m", "esd.cli", "train", "--iterations", "1"), "esd.native.engine"),
        (("-c", "import esd; esd.connect"), "esd.native"),
        (("-c", "import esd; esd.hybrid_dis([[1, 2]], [1, 0])"), "esd.native"),
    ],
)
async def test_what_needs_a_kernel_is_refused_by_name(client: Path, arguments: tuple[str, ...], module: str) -> None:
    refused = await _run(client, *arguments)
    assert refused.returncode == 1
    assert module in refused.stderr
    assert "is compiled code" in refused.stderr
    assert "pip install --force-reinstall --no-deps --no-binary esd-train esd-train" in refused.stderr


async def _run(client: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_python, client, *arguments)
