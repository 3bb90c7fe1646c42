"""Streams and jobs of the dispatch benchmark."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.data import count_distinct, open_data
from esd.dispatcher.core.planner import Planner
from esd.run.links import parse_links
from esd.services.domain.features import numbered_ids
from esd.services.domain.ids import distinct_values
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.mechanisms import MechanismOptions
from esd.services.domain.tables import OptimizerSpec, TableSpec

WORKERS = 8
UNEQUAL_LINKS = "5g,5g,5g,5g,0.5g,0.5g,0.5g,0.5g"
EQUAL_LINKS = "5g"
CACHE_RATIO = 0.08  # ESD §6.1
POLICY = "emark"

_READ_SAMPLES = 4096
_SHUFFLE_SEED = 1
_WINDOW = 4  # iterations between a decision and its workers' times; as `esd train`
_OPTIMIZER = OptimizerSpec()


@dataclass(frozen=True, slots=True)
class Stream:
    """The ids of a stream.

    Attributes:
        name: as in the results.
        ids: uint64 [N, F].
        cache_rows: 8% of the ids of `flights`, of the ids here where a stream is endless or long.
    """

    name: str
    ids: NDArray[np.uint64]
    cache_rows: int


def flights() -> Stream:
    """Returns all of `flights`, in time order."""
    return Stream("flights", read_ids("flights"), round(CACHE_RATIO * count_distinct("flights", seed=0)))


def shuffled(stream: Stream) -> Stream:
    """Returns the same samples in a random order."""
    order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(stream.ids))
    return Stream(f"{stream.name}, shuffled", stream.ids[order], stream.cache_rows)


def open_stream(name: str, samples: int) -> Stream:
    """Returns the beginning of a data set."""
    if name == "flights":
        whole = flights()
        return Stream(name, whole.ids[:samples], whole.cache_rows)
    ids = read_ids(name, samples)
    return Stream(name, ids, round(CACHE_RATIO * len(distinct_values(ids))))


def read_ids(data: str, samples: int | None = None) -> NDArray[np.uint64]:
    """Returns the ids of a data set, uint64 [N, F]: its first `samples`, all of them by default."""
    batches = open_data(data, _READ_SAMPLES, seed=0)
    wanted = None if samples is None else -(-samples // _READ_SAMPLES)
    return np.concatenate([batch.by_field for batch in itertools.islice(batches, wanted)])[:samples]


def make_planner(
    mechanism: str,
    *,
    fields: int,
    samples_per_worker: int,
    cache_rows: int,
    links: str = UNEQUAL_LINKS,
    workers: int = WORKERS,
    seed: int = 0,
    workloads: tuple[int, ...] | None = None,
    balanced: bool = False,
    options: MechanismOptions | None = None,
    dimension: int = 64,
) -> Planner:
    """Returns a planner at iteration 0. Workloads are equal unless given; balanced ones have no limits of the job's."""
    batch_size = samples_per_worker * workers
    job = JobSpec(
        name="bench",
        workers=workers,
        features=numbered_ids(fields),
        dense_features=0,
        batch_size=batch_size,
        workloads=workloads or equal_workloads(batch_size, workers),
        mechanism=mechanism,
        mechanism_options=options,
        policy=POLICY,
        seed=seed,
        window=_WINDOW,
        tables=(TableSpec("bench", dimension, _OPTIMIZER, seed=0, init_scale=0.01),),
        model=ModelSpec("wdl", (8,), _OPTIMIZER),
        parameter_servers=("none",),
        workload_limits=(0, batch_size) if balanced else None,
    )
    return Planner(job, parse_links(links, workers), [cache_rows] * workers)
