"""All services of a cluster as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from esd.run.events import Listener, ignore
from esd.run.services import START_SECONDS, ServiceProcess, Spawn, held_address, spawn_module, start_service
from esd.run.supervision import Supervisor, job_is_over
from esd.run.worker_host import WorkerHost
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.process import STOP_WITH_STDIN

REJOIN_SECONDS = 60.0  # a dead worker is started again here, and worth waiting for

T = TypeVar("T")


async def _directly(_worker: str, address: str) -> str:
    return address


class LocalCluster:
    """Parameter servers, a dispatcher and workers as processes of this machine, started and ended by a `with` block.

        async with LocalCluster(worker_links=[12.5e6, 1.25e6], cache_rows=[8000, 8000], logs=Path("logs")) as cluster:
            async with AsyncDispatcherClient(cluster.dispatcher.address) as client:
                ...

    On entering, the parameter servers and the dispatcher are ready and the workers are started; on leaving, workers,
    dispatcher and parameter servers end in this order. The workers end with their job. Services that die are started
    again only within `see_through`.

    Args:
        worker_links: speed of every worker's link, bytes per second; there is one worker for each.
        cache_rows: rows of every worker's cache.
        logs: an existing directory for the services' logs.
        shards: number of parameter-server processes.
        store: `memory` or a Redis URL. The parameter servers get the variables ESD_PS_STORE_*, too: the file of its
            password, the authority of its certificate.
        rejoin_seconds: how long the others wait for a worker that has died.
        checkpoint_dir: where parameter servers with the memory store keep checkpoints.
        decision_log: file of the dispatcher's decision log.
        reach_dispatcher: where a worker of this name reaches the dispatcher of this address.
        job: whose model is tried before any service is started.

    Raises:
        InvalidArgument: on entering, the model of `job` cannot be trained, or not exactly.
        ServiceFailed: on entering, a service has ended before it was ready.
        Unavailable: on entering, a service is not ready in time.
    """

    def __init__(
        self,
        *,
        worker_links: Sequence[float],
        cache_rows: Sequence[int],
        logs: Path,
        shards: int = 1,
        store: str = "memory",
        rejoin_seconds: float = REJOIN_SECONDS,
        checkpoint_dir: Path | None = None,
        decision_log: Path | None = None,
        reach_dispatcher: Callable[[str, str], Awaitable[str]] = _directly,
        job: JobSpec | None = None,
    ) -> None:
        self.parameter_servers: list[ServiceProcess] = []
        self.workers: list[ServiceProcess] = []
        self._dispatchers: list[ServiceProcess] = []
        self._worker_links = worker_links
        self._cache_rows = cache_rows
        self._logs = logs
        self._shards = shards
        self._store = store
        self._rejoin_seconds = rejoin_seconds
        self._checkpoint_dir = checkpoint_dir
        self._decision_log = decision_log
        self._reach_dispatcher = reach_dispatcher
        self._job = job
        self._stack = contextlib.AsyncExitStack()

    @property
    def dispatcher(self) -> ServiceProcess:
        """The dispatcher of the cluster, once it is entered."""
        (dispatcher,) = self._dispatchers
        return dispatcher

    @property
    def services(self) -> list[ServiceProcess]:
        """All services, in the order in which they end."""
        return [*self.workers, *self._dispatchers, *self.parameter_servers]

    @property
    def page(self) -> str:
        """Address of the page that shows the run."""
        return f"http://{self.dispatcher.page}/"

    @property
    def supervisor(self) -> Supervisor:
        """Starts the services again when they die."""
        return Supervisor(
            self.parameter_servers, self.dispatcher, self.workers, partial(job_is_over, self.dispatcher.address)
        )

    async def see_through(self, work: Coroutine[Any, Any, T], restarts: int, listener: Listener = ignore) -> T:
        """Returns the result of `work`, and meanwhile starts services that die again, `restarts` times in all.

        Raises:
            ServiceFailed: a service has died too often; the work is cancelled.
        """
        return await self.supervisor.see_through(work, restarts, listener)

    async def __aenter__(self) -> Self:
        """Starts all services."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends all services."""
        await self._stack.aclose()

    async def _start(self) -> None:
        host = WorkerHost(self._logs / "worker-host.log", START_SECONDS)
        self._stack.push_async_callback(host.close)
        if self._job is not None:
            await host.try_model(self._job)
        # They stop in the opposite order, those of a kind at once.
        for kind in (self.parameter_servers, self._dispatchers, self.workers):
            self._stack.push_async_callback(_stop, kind)
        await self._start_servers()
        await self._start_dispatcher()
        await asyncio.gather(*(service.wait_ready() for service in (*self._dispatchers, *self.parameter_servers)))
        await self._start_workers(partial(host.start_worker, [STOP_WITH_STDIN]))

    async def _start_servers(self) -> None:
        # What reaches Redis besides its URL, the file of its password first: a URL stands on a command line.
        store_access = {name: value for name, value in os.environ.items() if name.startswith("ESD_PS_STORE_")}
        kept = {} if self._checkpoint_dir is None else {"ESD_PS_CHECKPOINT_DIR": str(self._checkpoint_dir)}
        for shard in range(self._shards):
            place = {"ESD_PS_STORE": self._store, "ESD_PS_SHARD": str(shard), "ESD_PS_SHARDS": str(self._shards)}
            environment = store_access | place | kept
            await self._start_one(
                self.parameter_servers, f"ps-{shard}", spawn_module("esd.ps_server"), "ESD_PS_", environment
            )

    async def _start_dispatcher(self) -> None:
        environment = {
            "ESD_DISPATCHER_PAGE_PORT": "0",
            "ESD_DISPATCHER_REJOIN_SECONDS": str(self._rejoin_seconds),
        } | ({} if self._decision_log is None else {"ESD_DISPATCHER_DECISION_LOG": str(self._decision_log)})
        await self._start_one(
            self._dispatchers, "dispatcher", spawn_module("esd.dispatcher"), "ESD_DISPATCHER_", environment
        )

    async def _start_workers(self, spawn: Spawn) -> None:
        for slot, (link, rows) in enumerate(zip(self._worker_links, self._cache_rows, strict=True)):
            name = f"worker-{slot}"
            settings = {
                "ESD_WORKER_NAME": name,
                "ESD_WORKER_DISPATCHER": await self._reach_dispatcher(name, self.dispatcher.address),
                "ESD_WORKER_LINK": repr(link),
                "ESD_WORKER_CACHE_ROWS": str(rows),
            }
            await self._start_one(self.workers, name, spawn, "ESD_WORKER_", settings)

    async def _start_one(
        self, kind: list[ServiceProcess], name: str, spawn: Spawn, prefix: str, environment: Mapping[str, str]
    ) -> None:
        listen = {f"{prefix}LISTEN": self._stack.enter_context(held_address())}
        kind.append(await start_service(name, spawn, {**listen, **environment}, self._logs))


async def _stop(services: Sequence[ServiceProcess]) -> None:
    await asyncio.gather(*(service.stop() for service in services))
