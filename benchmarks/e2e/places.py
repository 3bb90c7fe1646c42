"""Where the services of a measured run are: processes of this machine, or machines with one network card each."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.services_on_machines import WorkerLink, dispatcher_at, server_at, services
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import JobState
from testbed.cards import machines

WORKERS, KERNEL = "workers", "kernel"  # which hold the links to their speeds


@dataclass(frozen=True, slots=True)
class Services:
    """Services that run.

    Attributes:
        dispatcher: its address.
        parameter_servers: addresses of all shards.
        processes: by name, `worker-2`, `dispatcher` or `ps-0`.
        see_through: waits for a run, and raises if a service ends before it.
    """

    dispatcher: str
    parameter_servers: tuple[str, ...]
    processes: Mapping[str, int]
    see_through: Callable[[Coroutine[Any, Any, JobState]], Coroutine[Any, Any, JobState]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The services that a run needs.

    Attributes:
        chosen: its options.
        cache_rows: of each worker.
        shards: parameter servers.
        logs: a folder for their logs.
        decisions: file of the dispatcher's decision log; None: it takes processor time, and is left out.
    """

    chosen: RunOptions
    cache_rows: int
    shards: int
    logs: Path
    decisions: Path | None


Place = Callable[[Wanted], AbstractAsyncContextManager[Services]]


@asynccontextmanager
async def on_this_machine(wanted: Wanted) -> AsyncIterator[Services]:
    """Runs services as processes here. The workers hold their links to their speeds."""
    chosen = wanted.chosen
    async with LocalServices(
        shards=wanted.shards,
        store="memory",
        worker_links=chosen.bandwidths(),
        cache_rows=[wanted.cache_rows] * chosen.workers,
        logs=wanted.logs,
        lan=chosen.lan_bandwidth(),
        decision_log=wanted.decisions,
    ) as cluster:
        yield Services(
            cluster.dispatcher.address,
            tuple(server.address for server in cluster.parameter_servers),
            {service.name: service.process.pid for service in cluster.services},
            lambda work: cluster.see_through(work, 0),
        )


@asynccontextmanager
async def on_machines(wanted: Wanted) -> AsyncIterator[Services]:
    """Runs each worker on a machine of its own, whose card the kernel holds to its speed; it needs root.

    Raises:
        InvalidArgument: the run has a second network, or several parameter servers; or this process is not root's.
        RuntimeError: a machine was not made, or a service has not started.
    """
    chosen = wanted.chosen
    if chosen.lan is not None or wanted.shards != 1:
        raise InvalidArgument("machines with one card each have no second network (--lan), and one parameter server")
    if os.geteuid() != 0:
        raise InvalidArgument("--network kernel makes network namespaces and shapes their links, which takes root")
    links = [WorkerLink(speed, wanted.cache_rows) for speed in chosen.bandwidths()]
    with (
        machines(chosen.bandwidths(), reached_from_here=True) as (hub, others),
        services(hub, others, links, wanted.logs, wanted.decisions) as processes,
    ):
        names = ["ps-0", "dispatcher", *(f"worker-{slot}" for slot in range(chosen.workers))]
        pids = {name: process.pid for name, process in zip(names, processes, strict=True)}
        yield Services(dispatcher_at(hub), (server_at(hub),), pids, _without_supervision)


async def _without_supervision(work: Coroutine[Any, Any, JobState]) -> JobState:
    """Waits for a run: a job without checkpoints fails by itself when a worker is lost."""
    return await work


PLACES: Mapping[str, Place] = {WORKERS: on_this_machine, KERNEL: on_machines}
