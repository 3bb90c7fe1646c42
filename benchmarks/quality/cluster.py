"""Training on a cluster of local processes, seed after seed on the same services."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.quality.samples import Samples
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.held_out import watched
from esd.run.options import RunOptions
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.state import Evaluation

Evaluations = Sequence[Evaluation]
Tell = Callable[[int, Evaluations], None]


def train(samples: Samples, chosen: RunOptions, seeds: Sequence[int], tell: Tell) -> None:
    """Trains a model with each seed, in a table of its own, and tells seed and evaluations by the held-out samples."""
    with tempfile.TemporaryDirectory(prefix="esd-quality-") as logs:
        asyncio.run(_train(samples, chosen, seeds, tell, Path(logs)))


async def _train(samples: Samples, chosen: RunOptions, seeds: Sequence[int], tell: Tell, logs: Path) -> None:
    async with (
        LocalServices(
            shards=1,
            store="memory",
            worker_links=chosen.bandwidths(),
            cache_rows=[chosen.cache_rows or 1] * chosen.workers,
            logs=logs,
        ) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        for number, seed in enumerate(seeds):
            if number:  # workers of a local cluster end with their job
                await asyncio.gather(*(worker.process.wait() for worker in cluster.workers))
                await asyncio.gather(*(worker.restart() for worker in cluster.workers))
            job = replace(chosen, seed=seed).job(
                features=samples.features,
                dense_features=samples.dense_features,
                parameter_servers=tuple(server.address for server in cluster.parameter_servers),
                table=f"seed-{seed}",
            )
            async with watched(chosen, job, samples.held_out_batches(), client) as held_out:
                final = await drive(client, job, samples.batches(), held_out=held_out)
                assert held_out is not None  # noqa: S101 - there are samples
                await held_out.finish(final.iterations_confirmed)
                tell(seed, held_out.evaluations)
