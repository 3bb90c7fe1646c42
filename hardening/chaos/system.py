"""One training run on a cluster of local processes, whose links can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from esd.run.cluster import REJOIN_SECONDS, LocalCluster
from esd.run.driver import drive
from esd.run.events import Listener, ignore, on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.patience import patiently
from esd.run.services import ServiceProcess
from esd.run.stream import training_stream
from esd.run.supervision import Supervisor
from esd.run.train import RESTARTS
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from tests.support.cuttable_proxy import CuttableProxy, cuttable_proxy

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=8&keys=20000",
    workers=2,
    links="1g,200m",
    batch=16,
    dim=8,
    cache_rows=600,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.002,
    iterations=200,
    seed=1,
    checkpoint_every=25,
)
_REJOIN_WITHOUT = 2.0  # seconds to wait for a worker that is known to stay away
LONGEST_RUN = 240.0  # seconds, on a busy machine; one that takes longer hangs


@dataclass(frozen=True, slots=True)
class System:
    """A running cluster and its links.

    Attributes:
        cluster: the services.
        worker_links: from each worker to the dispatcher.
        store_link: from all processes to the parameter server.
        driver_link: from the driver to the dispatcher.
    """

    cluster: LocalCluster
    worker_links: list[CuttableProxy]
    store_link: CuttableProxy
    driver_link: CuttableProxy


Watch = Callable[[System, JobState], None]


async def run(
    options: RunOptions,
    store: str | Path,
    place: Path,
    watch: Watch,
    *,
    absentee: int | None = None,
    longest: float = LONGEST_RUN,
    listener: Listener = ignore,
) -> JobState:
    """Trains once, as `esd train` does, and writes the model and the logs to `place`.

    Args:
        options: options of the training.
        store: URL of a Redis, or the folder where a memory store keeps its checkpoints.
        place: an existing folder.
        watch: called with every polled state of the job.
        absentee: slot of a worker that is not started again when it dies.
        longest: seconds after which a run hangs.
        listener: gets an event for each restarted service.

    Raises:
        TimeoutError: the run takes longer than `longest`.
        EsdError: the run ended with an error.
    """
    stream = training_stream(options)
    async with asyncio.timeout(longest), AsyncExitStack() as stack:
        links: list[CuttableProxy] = []

        async def reach_dispatcher(_worker: str, address: str) -> str:
            links.append(await stack.enter_async_context(cuttable_proxy(address)))
            return links[-1].address

        cluster = await stack.enter_async_context(
            LocalCluster(
                shards=1,
                store="memory" if isinstance(store, Path) else store,
                worker_links=options.bandwidths(),
                cache_rows=[options.cache_size(stream.dataset)] * options.workers,
                logs=place,
                rejoin_seconds=REJOIN_SECONDS if absentee is None else _REJOIN_WITHOUT,
                checkpoint_dir=store if isinstance(store, Path) else None,
                reach_dispatcher=reach_dispatcher,
            )
        )
        store_link = await stack.enter_async_context(cuttable_proxy(cluster.parameter_servers[0].address))
        driver_link = await stack.enter_async_context(cuttable_proxy(cluster.dispatcher.address))
        client = await stack.enter_async_context(AsyncDispatcherClient(driver_link.address))
        system = System(cluster, links, store_link, driver_link)
        job = options.job(
            features=stream.dataset.features,
            dense_features=stream.dataset.dense_features,
            parameter_servers=(store_link.address,),
            stream=stream.dataset.fingerprint,
        )
        job = replace(job, model=replace(job.model, hidden=(32,)))

        async def work() -> JobState:
            state = await drive(client, job, stream, on_progress(lambda state: watch(system, state)))
            await patiently(lambda: export_model(job, place / "model.npz"), listener)
            return state

        return await _supervised(cluster, absentee).see_through(work(), RESTARTS, listener)


def _supervised(cluster: LocalCluster, absentee: int | None) -> Supervisor:
    there: list[ServiceProcess] = [worker for slot, worker in enumerate(cluster.workers) if slot != absentee]
    return replace(cluster.supervisor, workers=there)
