"""One training run on a cluster of local processes, whose links can be cut and whose sample stream can pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from esd.run.cluster import LocalServices
from esd.run.driver import drive, going_on
from esd.run.events import Event, Listener, Progressed, ignore
from esd.run.export import export_model
from esd.run.held_out import watched
from esd.run.options import RunOptions
from esd.run.patience import Patience
from esd.run.prepare import prepare
from esd.run.services import ServiceProcess
from esd.run.supervision import Supervisor
from esd.run.train import RESTARTS, TrainedRun
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from hardening.chaos.pausing import PausingStream
from tests.support.cuttable_proxy import CuttableProxy

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=8&keys=20000",
    workers=2,
    links="1g,200m",
    batch=16,
    dim=8,
    hidden="32",
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
class Training:
    """The training of a run.

    Attributes:
        options: options of the training.
        shards: number of parameter servers.
        earlier: options of the run whose model is trained on (`--continue-from`); None: the model is new.
    """

    options: RunOptions
    shards: int = 1
    earlier: RunOptions | None = None

    def __str__(self) -> str:
        options = self.options
        parts = {
            options.optimizer.value: True,
            "direct" if options.direct else options.sync: True,
            options.dense_sum: True,
            "tables": options.schema is not None,
            f"{options.epochs} epochs": options.epochs > 1,
            "evaluated": options.evaluate_every > 0,
            "continued": self.earlier is not None,
        }
        return " ".join(part for part, there in parts.items() if there)


@dataclass(frozen=True, slots=True)
class System:
    """A running cluster, its links and its stream.

    Attributes:
        cluster: the services.
        worker_links: from each worker to the dispatcher.
        store_links: from all processes to each parameter server.
        driver_link: from the driver to the dispatcher.
        stream: the samples.
    """

    cluster: LocalServices
    worker_links: list[CuttableProxy]
    store_links: list[CuttableProxy]
    driver_link: CuttableProxy
    stream: PausingStream

    @property
    def links(self) -> list[CuttableProxy]:
        """All links."""
        return [*self.worker_links, *self.store_links, self.driver_link]


Watch = Callable[[System, JobState], None]


async def run(
    training: Training,
    store: str | Path,
    place: Path,
    watch: Watch,
    *,
    absentee: int | None = None,
    longest: float = LONGEST_RUN,
    listener: Listener = ignore,
) -> TrainedRun:
    """Trains once, as `esd train` does, and writes the model and the logs to `place`.

    Args:
        training: the training; the store must hold the model of `training.earlier`.
        store: URL of a Redis, or the folder where a memory store keeps its checkpoints.
        place: an existing folder.
        watch: called with every polled state of the job.
        absentee: slot of a worker that is not started again when it dies.
        longest: seconds after which a run hangs.
        listener: gets the events of the run except its progress, and an event for each restarted service.

    Raises:
        TimeoutError: the run takes longer than `longest`.
        EsdError: the run ended with an error.
    """
    options = training.options
    prepared = prepare(options)
    async with asyncio.timeout(longest), AsyncExitStack() as stack:
        links: list[CuttableProxy] = []

        async def reach_dispatcher(_worker: str, address: str) -> str:
            links.append(await stack.enter_async_context(CuttableProxy.running(address)))
            return links[-1].address

        cluster = await stack.enter_async_context(
            LocalServices(
                shards=training.shards,
                store="memory" if isinstance(store, Path) else store,
                worker_links=options.bandwidths(),
                cache_rows=[options.cache_size(prepared.stream.whole).rows] * options.workers,
                logs=place,
                rejoin_seconds=None if absentee is None else _REJOIN_WITHOUT,
                checkpoint_dir=store if isinstance(store, Path) else None,
                reach_dispatcher=reach_dispatcher,
            )
        )
        store_links = [
            await stack.enter_async_context(CuttableProxy.running(server.address))
            for server in cluster.parameter_servers
        ]
        driver_link = await stack.enter_async_context(CuttableProxy.running(cluster.dispatcher.address))
        client = await stack.enter_async_context(AsyncDispatcherClient(driver_link.address))
        stream = stack.enter_context(PausingStream(prepared.stream, prepared.stream.batch_size))
        system = System(cluster, links, store_links, driver_link, stream)

        def hear(event: Event) -> None:
            if isinstance(event, Progressed):
                watch(system, event.state)
            else:
                listener(event)

        async def work() -> TrainedRun:
            job = replace(prepared.job, parameter_servers=tuple(link.address for link in store_links))
            if training.earlier is not None:
                job = await going_on(job, listener=listener)
            async with watched(
                options, job, prepared.held_out, client, listener=hear, name=prepared.held_out_name
            ) as held_out:
                state = await drive(client, job, stream, hear, held_out)
                await Patience(listener).until_done(lambda: export_model(job, place / "model", graphs=False))
                if held_out is not None:
                    await held_out.finish(state.iterations_confirmed)
            return TrainedRun(job, state, tuple(held_out.evaluations) if held_out is not None else ())

        return await _supervised(cluster, absentee).see_through(work(), RESTARTS, listener)


def _supervised(cluster: LocalServices, absentee: int | None) -> Supervisor:
    there: list[ServiceProcess] = [worker for slot, worker in enumerate(cluster.workers) if slot != absentee]
    return replace(cluster.supervisor, workers=there)
