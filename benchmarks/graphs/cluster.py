"""ComplEx by ESD, on local clusters: figures, rows, and the bytes that reach and leave the dispatcher."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.graphs.counted import CountingProxy
from benchmarks.graphs.settings import FIGURES, Settings
from esd.model.trained import load
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.prepare import prepare
from esd.run.train import MODEL, train, train_attached

CHUNK = 1200  # samples that share negatives while bytes are counted: all of an iteration
_COUNTED_WORKERS, _COUNTED_EPOCHS = 2, 3


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model.

    Attributes:
        figures: of the triples of `test`, by name.
        rows: float32 [E, D] of entities and [R, D] of relations, in the order of their numbers.
    """

    figures: dict[str, float]
    rows: tuple[NDArray[np.float32], ...]


def trained(settings: Settings, workers: int, seed: int) -> Trained:
    """Trains on a local cluster."""
    with tempfile.TemporaryDirectory(prefix="esd-graphs-") as folder:
        run = asyncio.run(train(settings.options(workers, seed), out=Path(folder), graphs=False))
        held_out, model = run.result()["held_out"], load(Path(folder) / MODEL)
        rows = tuple(np.array(model.table(number).rows) for number in range(len(run.job.tables)))
    return Trained({name: held_out[name] for name in FIGURES}, rows)


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes of connections to the dispatcher, per iteration.

    Attributes:
        negatives: ids of a list.
        to_dispatcher: from the driver and all workers.
        from_dispatcher: to them.
    """

    negatives: int
    to_dispatcher: float
    from_dispatcher: float


def carried(settings: Settings, negatives: int) -> Carried:
    """Trains with negatives that 1,200 samples share, and counts the bytes between the dispatcher and all others."""
    options = replace(
        settings.options(_COUNTED_WORKERS, seed=0),
        data=f"graph:{settings.graph}?negatives={negatives}&chunk={CHUNK}",
        batch=CHUNK // _COUNTED_WORKERS,
        epochs=_COUNTED_EPOCHS,
        iterations=None,
        evaluate=None,
    )
    return asyncio.run(_carried(options, negatives))


async def _carried(options: RunOptions, negatives: int) -> Carried:
    cache = options.cache_size(prepare(options).stream.whole)
    with tempfile.TemporaryDirectory(prefix="esd-graphs-") as logs:
        async with (
            CountingProxy() as proxy,
            LocalServices(
                worker_links=options.bandwidths(),
                cache_rows=[cache.rows] * options.workers,
                logs=Path(logs),
                reach_dispatcher=proxy.reach,
            ) as cluster,
        ):
            servers = ",".join(server.address for server in cluster.parameter_servers)
            dispatcher = await proxy.reach("driver", cluster.dispatcher.address)
            run = await train_attached(options, dispatcher=dispatcher, parameter_servers=servers)
    iterations = run.state.iterations_confirmed
    return Carried(negatives, proxy.towards / iterations, proxy.back / iterations)
