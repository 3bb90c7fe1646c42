"""Runs all services of a cluster as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from esd.run.worker_host import Process, WorkerHost, end_of
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.process import STOP_WITH_STDIN

START_SECONDS = 120.0  # for one service, or the import of torch on a busy small machine
STOP_SECONDS = 15.0
REJOIN_SECONDS = 60.0  # a dead worker is started again here, and worth waiting for
_FIRST_PAUSE_SECONDS = 1.0  # before a second start in a row, and twice as long before each further one
_LONGEST_PAUSE_SECONDS = 15.0

T = TypeVar("T")


class ServiceFailed(EsdError):
    """A service process ended with an error."""


@dataclass(slots=True)
class ServiceProcess:
    """One running service.

    Attributes:
        name: for messages, such as `worker-2`.
        process: its process.
        log: the file that takes its standard error.
        start: makes a process of it, which listens where the one before did.
        address: `host:port` of its gRPC service.
        metrics: `host:port` of its metrics page, if it has one.
        page: `host:port` of the page for people, if it has one.
        restarts: how often it was started again, or was about to be.
    """

    name: str
    process: Process
    log: Path
    start: Callable[[], Coroutine[Any, Any, Process]]
    address: str = ""
    metrics: str | None = None
    page: str | None = None
    restarts: int = 0

    async def restart(self) -> None:
        """Starts a service that has died again, at its old address.

        Raises:
            ServiceFailed: it has died once more before it was ready.
            Unavailable: it is not ready in time.
        """
        starting = asyncio.create_task(self.start())
        try:
            self.process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.process = await starting  # for `stop`: a process that nobody knows would run on
            raise
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Reads the ready line. Raises ServiceFailed if the process ends first, Unavailable if it takes too long."""
        assert self.process.stdout is not None  # noqa: S101 - started with a pipe
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await self.process.stdout.readline()
                if not line.endswith(b"\n"):  # nothing, or half of it
                    await self.process.wait()
                    raise self.failure()
        except TimeoutError:
            raise Unavailable(f"{self.name} was not ready within {START_SECONDS:.0f} s; its log: {self.log}") from None
        ready = json.loads(line)
        self.address = ready["address"]
        self.metrics = ready.get("metrics")
        self.page = ready.get("page")

    def failure(self) -> ServiceFailed:
        """Makes the error that tells the user about a process that ended on its own."""
        return ServiceFailed(f"{self.name} ended with exit code {self.process.returncode}; end of {end_of(self.log)}")

    async def stop(self) -> None:
        """Stops the process with SIGTERM, or with SIGKILL if it does not end in time."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


async def _stop(services: Sequence[ServiceProcess]) -> None:
    await asyncio.gather(*(service.stop() for service in services))


Spawn = Callable[[Mapping[str, str], int], Coroutine[Any, Any, Process]]  # environment, standard error


def _spawn(module: str) -> Spawn:
    """Returns what starts `python -m MODULE`."""

    async def spawn(environment: Mapping[str, str], log: int) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, STOP_WITH_STDIN,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the command alone, which then stops the services in order
        )  # fmt: skip

    return spawn


@contextlib.contextmanager
def held_address() -> Iterator[str]:
    """Draws `host:port` of this machine for a service, and keeps everybody else from the port until the block ends.

    A port that a service draws itself is anybody's while the service is away, and then it cannot come back. Linux lets
    a second socket listen at an address that the first one has and does not listen at, and gives its port to nobody
    who asks for any. Other systems may not, so there the port is drawn, and not held.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        host, port = held.getsockname()
        if sys.platform != "linux":
            held.close()
        yield f"{host}:{port}"


async def _start(name: str, spawn: Spawn, environment: Mapping[str, str], logs: Path) -> ServiceProcess:
    log = logs / f"{name}.log"
    log.unlink(missing_ok=True)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("ESD_")}

    async def start() -> Process:
        with log.open("ab") as stderr:
            return await spawn({**inherited, **environment}, stderr.fileno())

    return ServiceProcess(name, await start(), log, start)


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The running services: parameter servers in shard order, the dispatcher, workers as they were started."""

    parameter_servers: Sequence[ServiceProcess]
    dispatcher: ServiceProcess
    workers: Sequence[ServiceProcess]

    @property
    def services(self) -> list[ServiceProcess]:
        """All services, in the order in which they stop."""
        return [*self.workers, self.dispatcher, *self.parameter_servers]

    async def first_failure(self) -> ServiceFailed:
        """Waits until a service ends that should not have, and returns why."""
        return await self.supervise(0, lambda _: None)

    async def see_through(self, work: Coroutine[Any, Any, T], restarts: int, report: Callable[[str], None]) -> T:
        """Returns the result of `work`, and supervises the services until it is there.

        Raises:
            ServiceFailed: a service has died too often; the work is cancelled.
        """
        working = asyncio.create_task(work)
        failure = asyncio.create_task(self.supervise(restarts, report))
        try:
            await asyncio.wait({working, failure}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise failure.result()
            return working.result()
        finally:
            for task in (working, failure):
                task.cancel()
            await asyncio.gather(working, failure, return_exceptions=True)

    async def supervise(self, restarts: int, report: Callable[[str], None]) -> ServiceFailed:
        """Starts services that die again; returns the failure of the one that has died too often.

        Each service is looked after by itself, so that one that takes long to start keeps no other waiting. A start
        that fails counts as a restart, too, and is followed by another one after a pause.

        Args:
            restarts: how many restarts there may be, over all services.
            report: is told of each.
        """

        def left() -> int:
            return restarts - sum(service.restarts for service in self.services)

        keepers = {asyncio.create_task(self._keep_running(service, left, report)) for service in self.services}
        try:
            while keepers:
                done, keepers = await asyncio.wait(keepers, return_when=asyncio.FIRST_COMPLETED)
                for keeper in done:
                    failure = keeper.result()
                    if failure is not None:
                        return failure
            await asyncio.Event().wait()  # all workers are done and well
            raise AssertionError("unreachable")
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _keep_running(
        self, service: ServiceProcess, left: Callable[[], int], report: Callable[[str], None]
    ) -> ServiceFailed | None:
        """Starts one service again whenever it dies. Returns None when a worker is done."""
        pauses = pauses_between_restarts()
        while True:
            code = await service.process.wait()
            if code == 0 and service in self.workers:
                return None
            if left() <= 0:
                return service.failure()
            pause = next(pauses)
            after = f" in {pause:g} s" if pause else ""
            report(f"{service.name} ended with exit code {code} and is started again{after}")
            service.restarts += 1  # before the pause, so that two services never share the last one
            await asyncio.sleep(pause)
            try:
                await service.restart()
            except ServiceFailed:
                continue  # its end is what the next round begins with
            except Unavailable as error:
                report(str(error))
                await service.stop()
                continue
            pauses = pauses_between_restarts()


def pauses_between_restarts() -> Iterator[float]:
    """Yields the seconds to wait before a service is started once more: none at first, then longer ones.

    What it needs to start may be away itself, such as Redis, and come back meanwhile.
    """
    yield 0.0
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


async def _directly(_worker: str, address: str) -> str:
    return address


@contextlib.asynccontextmanager
async def local_cluster(
    *,
    shards: int,
    store: str,
    worker_links: Sequence[float],
    cache_rows: Sequence[int],
    logs: Path,
    rejoin_seconds: float = REJOIN_SECONDS,
    checkpoint_dir: Path | None = None,
    decision_log: Path | None = None,
    reach_dispatcher: Callable[[str, str], Awaitable[str]] = _directly,
    job: JobSpec | None = None,
) -> AsyncIterator[LocalCluster]:
    """Starts parameter servers, a dispatcher and one worker per link; stops them all on leaving.

    Args:
        shards: number of parameter-server processes.
        store: `memory` or a Redis URL. The parameter servers get the variables ESD_PS_STORE_*, too: the file of its
            password, the authority of its certificate.
        worker_links: bytes per second of every worker's link.
        cache_rows: rows of every worker's cache.
        logs: an existing directory for the services' logs.
        rejoin_seconds: how long the others wait for a worker that has died.
        checkpoint_dir: where parameter servers with the memory store keep checkpoints.
        decision_log: file of the dispatcher's decision log.
        reach_dispatcher: where a worker of this name reaches the dispatcher of this address.
        job: whose model is tried before any service is started.

    Raises:
        InvalidArgument: the model cannot be trained, or not exactly.
    """
    async with contextlib.AsyncExitStack() as stack:
        host = WorkerHost(logs / "worker-host.log", START_SECONDS)
        stack.push_async_callback(host.close)
        if job is not None:
            await host.try_model(job)

        # They stop in the opposite order, those of a kind at once.
        servers: list[ServiceProcess] = []
        dispatchers: list[ServiceProcess] = []
        workers: list[ServiceProcess] = []
        for kind in (servers, dispatchers, workers):
            stack.push_async_callback(_stop, kind)

        async def start(
            kind: list[ServiceProcess], name: str, spawn: Spawn, prefix: str, environment: Mapping[str, str]
        ) -> None:
            listen = {f"{prefix}LISTEN": stack.enter_context(held_address())}
            kind.append(await _start(name, spawn, {**listen, **environment}, logs))

        # What reaches Redis besides its URL, the file of its password first: a URL stands on a command line.
        store_access = {name: value for name, value in os.environ.items() if name.startswith("ESD_PS_STORE_")}
        kept = {} if checkpoint_dir is None else {"ESD_PS_CHECKPOINT_DIR": str(checkpoint_dir)}
        for shard in range(shards):
            place = {"ESD_PS_STORE": store, "ESD_PS_SHARD": str(shard), "ESD_PS_SHARDS": str(shards)}
            await start(servers, f"ps-{shard}", _spawn("esd.ps_server"), "ESD_PS_", store_access | place | kept)
        await start(
            dispatchers,
            "dispatcher",
            _spawn("esd.dispatcher"),
            "ESD_DISPATCHER_",
            {"ESD_DISPATCHER_PAGE_PORT": "0", "ESD_DISPATCHER_REJOIN_SECONDS": str(rejoin_seconds)}
            | ({} if decision_log is None else {"ESD_DISPATCHER_DECISION_LOG": str(decision_log)}),
        )
        await asyncio.gather(*(service.wait_ready() for service in (*dispatchers, *servers)))
        (dispatcher,) = dispatchers
        spawn_worker = partial(host.start_worker, [STOP_WITH_STDIN])
        for slot, (link, rows) in enumerate(zip(worker_links, cache_rows, strict=True)):
            name = f"worker-{slot}"
            settings = {
                "ESD_WORKER_NAME": name,
                "ESD_WORKER_DISPATCHER": await reach_dispatcher(name, dispatcher.address),
                "ESD_WORKER_LINK": repr(link),
                "ESD_WORKER_CACHE_ROWS": str(rows),
            }
            await start(workers, name, spawn_worker, "ESD_WORKER_", settings)
        yield LocalCluster(servers, dispatcher, workers)
