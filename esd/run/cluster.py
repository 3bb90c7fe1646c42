"""All services of a cluster as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeVar

from esd.run import valkey
from esd.run.events import Listener, ignore
from esd.run.local_settings import LocalSettings
from esd.run.services import (
    START_SECONDS,
    ServiceProcess,
    Spawn,
    held_address,
    spawn_module,
    start_service,
)
from esd.run.supervision import Supervisor, job_is_over
from esd.run.worker_here import Here
from esd.run.worker_host import WorkerHost
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.process import STOP_WITH_STDIN
from esd.services.runtime.settings import load
from esd.services.runtime.site_values import folder_of_site
from esd.worker.service.settings import WorkerSettings

# Of the driver and of every service, at rest with 2 workers: 11 to 14.
_THREADS_OF_A_PROCESS = 11

T = TypeVar("T")


async def _directly(_worker: str, address: str) -> str:
    return address


class LocalServices:
    """Parameter servers, a dispatcher and workers as processes of this machine, started and ended by a `with` block.

        async with LocalServices(worker_links=[12.5e6, 1.25e6], cache_rows=[8000, 8000], logs=Path("logs")) as cluster:
            async with AsyncDispatcherClient(cluster.dispatcher.address) as client:
                ...

    On entering, the parameter servers and the dispatcher are ready and the workers are started; on leaving, workers,
    dispatcher and parameter servers end in this order. The workers end with their job. Services that die are started
    again only within `see_through`.

    The services take their settings from the ESD_* variables of this process and the file of ESD_CONFIG, as services
    do; a setting that the cluster decides is refused (esd.run.local_settings).

    Args:
        worker_links: speed of every worker's link, bytes per second; there is one worker for each.
        worker_sites: site of every worker; empty: none.
        site_values: folder with the values of all sites, of which each worker gets its site's; None: samples travel as
            a whole.
        cache_rows: rows of every worker's cache.
        lan: speed of a second network that every worker has for the traffic between workers, bytes per second; None:
            there is none.
        logs: an existing directory for the services' logs.
        shards: number of parameter-server processes.
        store: `memory`, the URL of a Redis, or `valkey` for a Valkey server of the cluster's own. The file of a
            Redis' password is a setting of the parameter servers, as is the authority of its certificate.
        rejoin_seconds: how long the others wait for a worker that has died; None: 60 s.
        checkpoint_dir: directory or URL where parameter servers with the memory store keep checkpoints, or directory
            of the data of the cluster's own Valkey; None: the data of that Valkey ends with the cluster.
        decision_log: file of the dispatcher's decision log.
        shadows: mechanisms whose cost is computed for comparison, none if empty; None: the dispatcher's default.
        device: of the workers, as `--device` has it (`cuda`, `cuda:0,cuda:1`); None: ESD_WORKER_DEVICE, or `cpu`.
        reach_dispatcher: where a worker of this name reaches the dispatcher of this address.
        here: the place of the one worker in this process, in which it trains during `see_through`; None: workers are
            processes.
        job: whose model is tried before any service is started.
        listener: gets `TakesLong` if this trial takes long.

    Raises:
        InvalidArgument: on entering, the model of `job` cannot be trained, or not exactly; or a setting of a service
            is wrong, or one that the cluster decides.
        ServiceFailed: on entering, a service has ended before it was ready.
        Unavailable: on entering, a service is not ready in time.
    """

    def __init__(
        self,
        *,
        worker_links: Sequence[float],
        worker_sites: Sequence[str] = (),
        site_values: Path | None = None,
        cache_rows: Sequence[int],
        logs: Path,
        lan: float | None = None,
        shards: int = 1,
        store: str = "memory",
        rejoin_seconds: float | None = None,
        checkpoint_dir: Path | str | None = None,
        decision_log: Path | None = None,
        shadows: Sequence[str] | None = None,
        device: str | None = None,
        reach_dispatcher: Callable[[str, str], Awaitable[str]] = _directly,
        here: Here | None = None,
        job: JobSpec | None = None,
        listener: Listener = ignore,
    ) -> None:
        self.stores: list[ServiceProcess] = []
        self.parameter_servers: list[ServiceProcess] = []
        self.workers: list[ServiceProcess] = []
        self._dispatchers: list[ServiceProcess] = []
        self._worker_links = worker_links
        self._cache_rows = cache_rows
        self._sites = worker_sites
        self._site_values = site_values
        self._second_network = {} if lan is None else {"lan": lan}
        self._logs = logs
        self._settings = LocalSettings(
            workers=len(worker_links),
            store=store,
            shards=shards,
            checkpoint_dir=checkpoint_dir,
            decision_log=decision_log,
            shadows=shadows,
            device=device,
            rejoin_seconds=rejoin_seconds,
        )
        self._reach_dispatcher = reach_dispatcher
        self._here = here
        self._job = job
        self._listener = listener
        self._stack = contextlib.AsyncExitStack()

    @property
    def dispatcher(self) -> ServiceProcess:
        """The dispatcher of the cluster, once it is entered."""
        (dispatcher,) = self._dispatchers
        return dispatcher

    @property
    def services(self) -> list[ServiceProcess]:
        """All services, in the order in which they end."""
        return [*self.workers, *self._dispatchers, *self.parameter_servers, *self.stores]

    @property
    def page(self) -> str | None:
        """Address of the page that shows the run; None if ESD_DISPATCHER_PAGE_PORT turns it off."""
        return None if self.dispatcher.page is None else f"http://{self.dispatcher.page}/"

    @property
    def supervisor(self) -> Supervisor:
        """Starts the services again when they die."""
        return Supervisor(
            [*self.parameter_servers, *self.stores],
            self.dispatcher,
            self.workers,
            partial(job_is_over, self.dispatcher.address),
        )

    async def see_through(self, work: Coroutine[Any, Any, T], restarts: int, listener: Listener = ignore) -> T:
        """Returns the result of `work`, and meanwhile starts services that die again, `restarts` times in all.

        Raises:
            ServiceFailed: a service has died too often; the work is cancelled.
        """
        if self._here is not None:
            work = self._here.beside(work, load(WorkerSettings, listen="127.0.0.1:0", **await self._place(0)))
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
        self._settings.check()
        _check_working_directory()
        _check_threads(2 + self._settings.shards + self._settings.workers)
        spawn_worker = None if self._here is not None else await self._host_workers()
        kept = self._settings.checkpoint_dir
        if self._settings.store == valkey.STORE and kept is None:
            kept = Path(self._stack.enter_context(TemporaryDirectory(prefix="esd-valkey-")))
        # They stop in the opposite order, those of a kind at once.
        for kind in (self.stores, self.parameter_servers, self._dispatchers, self.workers):
            self._stack.push_async_callback(_stop, kind)
        if self._settings.store == valkey.STORE and isinstance(kept, Path):
            await self._start_valkey(valkey.kept_below(kept))
        await self._start_servers()
        await self._start_dispatcher()
        await asyncio.gather(*(service.wait_ready() for service in (*self._dispatchers, *self.parameter_servers)))
        if spawn_worker is not None:
            await self._start_workers(spawn_worker)

    async def _host_workers(self) -> Spawn:
        """Starts the process of which workers are forks, tries the model there, and returns the start of a worker."""
        host = WorkerHost(self._logs / "worker-host.log", START_SECONDS)
        self._stack.push_async_callback(host.close)
        if self._job is not None:
            await host.try_model(self._job, self._listener)
        return partial(host.start_worker, [STOP_WITH_STDIN])

    async def _start_valkey(self, directory: Path) -> None:
        """Starts the cluster's own Valkey, of which the parameter servers then know the URL alone."""
        address = self._stack.enter_context(held_address())
        spawn = spawn_module("esd.run.valkey_process", address, str(directory))
        self.stores.append(await start_service("valkey", spawn, {}, self._logs))
        await self.stores[0].wait_ready()
        self._settings = replace(self._settings, store=valkey.url_at(address), checkpoint_dir=None)

    async def _start_servers(self) -> None:
        spawn = spawn_module("esd.ps_server")
        for shard in range(self._settings.shards):
            settings = self._settings.server(shard)
            await self._start_one(self.parameter_servers, f"ps-{shard}", spawn, "ESD_PS_", settings)

    async def _start_dispatcher(self) -> None:
        spawn, settings = spawn_module("esd.dispatcher"), self._settings.dispatcher()
        await self._start_one(self._dispatchers, "dispatcher", spawn, "ESD_DISPATCHER_", settings)

    async def _start_workers(self, spawn: Spawn) -> None:
        for slot in range(self._settings.workers):
            place = await self._place(slot)
            await self._start_one(self.workers, place["name"], spawn, "ESD_WORKER_", self._settings.worker(**place))

    @cached_property
    def _devices(self) -> tuple[str, ...]:
        """The device of every worker, looked for once."""
        return self._settings.devices()

    async def _place(self, slot: int) -> dict[str, Any]:
        """Returns the settings of a worker that the cluster decides."""
        name = f"worker-{slot}"
        return {
            "name": name,
            "dispatcher": await self._reach_dispatcher(name, self.dispatcher.address),
            "link": self._worker_links[slot],
            "cache_rows": self._cache_rows[slot],
            "device": self._devices[slot],
            **self._second_network,
            **self._site(slot),
        }

    def _site(self, slot: int) -> dict[str, Any]:
        if not self._sites:
            return {}
        site, folder = self._sites[slot], self._site_values
        return {"site": site} | ({} if folder is None else {"site_values": folder_of_site(folder, site).absolute()})

    async def _start_one(
        self,
        kind: list[ServiceProcess],
        name: str,
        spawn: Spawn,
        prefix: str,
        environment: Mapping[str, str],
    ) -> None:
        listen = {f"{prefix}LISTEN": self._stack.enter_context(held_address())}
        kind.append(await start_service(name, spawn, {**environment, **listen}, self._logs))


def _check_working_directory() -> None:
    """Raises FailedPrecondition if the working directory has been removed: torch cannot be imported in such a place."""
    try:
        os.getcwd()  # noqa: PTH109 - a path is not what matters
    except FileNotFoundError:
        raise FailedPrecondition("the working directory has been removed; change to one that exists") from None


def _check_threads(processes: int) -> None:
    """Refuses a limit with which some process could not start its threads: gRPC would end it by a segmentation fault.

    Raises:
        FailedPrecondition: the user of this process may have fewer threads than the driver and the services need.
    """
    limit, needed = resource.getrlimit(resource.RLIMIT_NPROC)[0], processes * _THREADS_OF_A_PROCESS
    if os.geteuid() != 0 and resource.RLIM_INFINITY != limit < needed:  # the limit does not bind root
        raise FailedPrecondition(
            f"a local run of {processes} processes needs at least {needed} threads, and ulimit -u {limit} allows "
            f"{limit} to all processes of this user; raise the limit, or train with fewer workers"
        )


async def _stop(services: Sequence[ServiceProcess]) -> None:
    await asyncio.gather(*(service.stop() for service in services))
