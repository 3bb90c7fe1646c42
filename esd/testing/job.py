"""The job of the conformance test, and its samples."""

from __future__ import annotations

import numpy as np

from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.features import single_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

LEARNING_RATE = 0.1
CACHE_ROWS = 90  # fewer than the rows that two iterations use, so that rows are evicted
ITERATIONS = 24  # whole ones; the last has one sample, so that a worker has none
_IDS = 400

JOB = JobSpec(
    name="conformance",
    dense_sum=ALL_REDUCE,
    workers=2,
    features=single_ids(("user", "item", "shop")),
    dense_features=2,
    batch_size=48,
    workloads=(32, 16),
    mechanism="random",
    policy="lru",
    seed=11,
    window=4,
    checkpoint_every=6,
    tables=(TableSpec("rows", 8, OptimizerSpec(OptimizerKind.SGD, LEARNING_RATE), seed=11, init_scale=0.1),),
    model=ModelSpec("dlrm", (16,), OptimizerSpec(OptimizerKind.SGD, LEARNING_RATE)),
    parameter_servers=("127.0.0.1:1",),  # the test puts its own in
)


def samples() -> SampleBatch:
    """Returns the whole stream. Some ids are in most batches and most ids are in few; labels follow from the ids."""
    rng = np.random.default_rng(5)
    count = ITERATIONS * JOB.batch_size + 1
    universe = rng.integers(0, 2**56, _IDS, np.uint64)
    places = (_IDS * rng.random((count, JOB.fields)) ** 2).astype(np.int64)
    dense = rng.normal(size=(count, JOB.dense_features)).astype(np.float32)
    liking = rng.normal(size=_IDS)[places].sum(axis=1) + dense[:, 0]
    labels = (liking + rng.normal(size=count) > 0).astype(np.float32)
    return SampleBatch.of_fields(universe[places], dense, labels)
