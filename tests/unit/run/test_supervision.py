"""Services that die, also while they are being started again; here they are processes that are quick to start."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from esd.run import services as running_services
from esd.run import supervision
from esd.run.events import Event, ServiceNotReady, ServiceRestarted
from esd.run.services import ServiceFailed, ServiceProcess
from esd.run.supervision import Supervisor, pauses_between_restarts
from esd.services.domain.errors import Unavailable

# Each start takes a line off the file: `serve` gets ready and stays, `die` gets ready and dies, `fail` dies before,
# `wait` never gets ready, `done` ends well; `load:N` tells of progress N times and gets ready, `stall:N` then waits.
_SERVICE = """
import json, pathlib, sys, time
plan = pathlib.Path(sys.argv[1])
act, _, rest = plan.read_text().partition(" ")
plan.write_text(rest)
act, _, steps = act.partition(":")
for step in range(int(steps or 0)):
    print(json.dumps({"event": "loading", "progress": f"{step} MiB are read"}), flush=True)
    time.sleep(0.05)
act = {"load": "serve", "stall": "wait"}.get(act, act)
if act in ("serve", "die", "done"):
    print(json.dumps({"address": "127.0.0.1:1"}), flush=True)
if act in ("serve", "wait"):
    time.sleep(600)
sys.exit(0 if act == "done" else 3)
"""


class Services:
    """Makes services that behave as they are told at each start, and stops them in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[ServiceProcess] = []

    async def make(self, name: str, acts: str) -> ServiceProcess:
        plan = self.folder / name
        plan.write_text(acts)
        log = self.folder / f"{name}.log"
        log.touch()

        async def start() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-c", _SERVICE, str(plan), stdout=asyncio.subprocess.PIPE
            )

        service = ServiceProcess(name, await start(), log, start)
        self.made.append(service)
        return service

    async def cluster(
        self, server: str, dispatcher: str = "serve", worker: str = "serve", *, over: bool = False
    ) -> Supervisor:
        async def job_is_over() -> bool:
            return over

        return Supervisor(
            [await self.make("ps-0", server)],
            await self.make("dispatcher", dispatcher),
            [await self.make("worker-0", worker)],
            job_is_over,
        )

    def left(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
async def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    monkeypatch.setattr(supervision, "_FIRST_PAUSE_SECONDS", 0.01)
    made = Services(tmp_path)
    yield made
    for service in made.made:
        await service.stop()


async def running_again(service: ServiceProcess, restarts: int) -> str:
    """Waits until a service was started so often and got ready."""
    while not (service.restarts >= restarts and service.address):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    return "done"


async def test_a_start_that_fails_is_tried_again_and_counts(services: Services) -> None:
    cluster = await services.cluster("die fail fail serve")
    told: list[Event] = []
    async with asyncio.timeout(110):
        work = running_again(cluster.servers[0], 3)
        assert await cluster.see_through(work, 3, told.append) == "done"
    assert told == [ServiceRestarted("ps-0", 3, pause) for pause in (0, 0.01, 0.02)]
    assert [str(each).partition(" started again")[2] for each in told] == ["", " in 0.01 s", " in 0.02 s"]
    assert [service.restarts for service in cluster.services] == [0, 0, 3]


async def test_the_budget_is_shared_and_its_end_is_the_failure_of_one_that_died(services: Services) -> None:
    cluster = await services.cluster("die fail fail fail fail", dispatcher="die fail fail fail fail")
    async with asyncio.timeout(110):
        with pytest.raises(ServiceFailed, match=r"^(dispatcher|ps-0) ended with exit code 3"):
            await cluster.see_through(asyncio.Event().wait(), 5)
    assert sum(service.restarts for service in cluster.services) == 5


async def test_one_that_does_not_get_ready_keeps_no_other_from_being_started_again(services: Services) -> None:
    cluster = await services.cluster("die wait", worker="die serve")

    async def work() -> None:
        await running_again(cluster.workers[0], 1)
        assert cluster.servers[0].restarts < 2  # it was not given up yet

    async with asyncio.timeout(110):
        await cluster.see_through(work(), 5)


async def test_one_that_is_not_ready_in_time_is_stopped_and_started_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_services, "START_SECONDS", 1.0)
    cluster = await services.cluster("die wait" + 20 * " serve")  # the last ones may be slow to start, too
    told: list[Event] = []

    async def work() -> None:
        while not services.left("ps-0").startswith("serve"):  # noqa: ASYNC110 - nobody tells of its start
            await asyncio.sleep(0.01)
        while not any(isinstance(each, ServiceNotReady) and "not ready within 1 s" in str(each) for each in told):  # noqa: ASYNC110 - it tells nobody else
            await asyncio.sleep(0.01)
        await running_again(cluster.servers[0], 2)

    async with asyncio.timeout(110):
        await cluster.see_through(work(), 20, told.append)


async def test_a_server_that_gets_on_with_loading_may_take_any_time(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_services, "START_SECONDS", 3.0)
    service = await services.make("ps-0", "load:80")
    began = time.monotonic()
    await service.wait_ready()
    assert time.monotonic() - began > 3.5
    assert service.address == "127.0.0.1:1"


async def test_a_server_that_stops_loading_is_given_up_with_its_last_progress(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_services, "START_SECONDS", 2.0)
    service = await services.make("ps-0", "stall:3")
    with pytest.raises(Unavailable, match=r"not ready within 2 s of its last progress \(2 MiB are read\); its log"):
        await service.wait_ready()


async def test_a_server_that_repeats_its_progress_makes_none(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_services, "START_SECONDS", 2.0)
    line = 'print(\'{"event": "loading", "progress": "none"}\', flush=True)'

    async def start() -> asyncio.subprocess.Process:
        repeats = f"import time\nwhile True:\n  {line}\n  time.sleep(0.05)"
        return await asyncio.create_subprocess_exec(sys.executable, "-c", repeats, stdout=asyncio.subprocess.PIPE)

    service = ServiceProcess("ps-0", await start(), services.folder / "ps-0.log", start)
    services.made.append(service)
    with pytest.raises(Unavailable, match=r"not ready within 2 s of its last progress \(none\)"):
        await service.wait_ready()


async def test_a_worker_that_is_done_is_left_alone_and_a_service_is_not(services: Services) -> None:
    cluster = await services.cluster("serve", dispatcher="done serve", worker="done serve", over=True)

    async def work() -> None:
        assert await cluster.workers[0].process.wait() == 0
        await running_again(cluster.dispatcher, 1)

    async with asyncio.timeout(110):
        await cluster.see_through(work(), 5)
    assert [service.restarts for service in cluster.services] == [0, 1, 0]
    assert services.left("worker-0") == "serve"


async def test_a_worker_that_ends_without_an_error_before_the_job_is_started_again(services: Services) -> None:
    """SIGTERM ends it so, and a model that calls `os._exit(0)`."""
    cluster = await services.cluster("serve", worker="done serve")
    told: list[Event] = []
    async with asyncio.timeout(110):
        await cluster.see_through(running_again(cluster.workers[0], 1), 5, told.append)
    assert [str(each) for each in told] == [
        "worker-0 ended with exit code 0 before the job was over and is started again"
    ]


async def test_a_worker_that_always_ends_without_an_error_ends_the_run(services: Services) -> None:
    cluster = await services.cluster("serve", worker="done done done")
    async with asyncio.timeout(110):
        with pytest.raises(ServiceFailed, match=r"^worker-0 ended with exit code 0"):
            await cluster.see_through(asyncio.Event().wait(), 2)


def test_pauses_grow_up_to_a_bound() -> None:
    pauses = pauses_between_restarts()
    assert [next(pauses) for _ in range(7)] == [0, 1, 2, 4, 8, 15, 15]
