"""A small job, its stream, and the model that the parameter servers hold at the end."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.server_client import ServerClient


def small_job(
    servers: Sequence[str], workers: int, optimizer: OptimizerSpec, workloads: Sequence[int] | None = None
) -> JobSpec:
    """Four fields, two dense features, 12 samples per batch, rows of 5 values."""
    return JobSpec(
        name="job",
        dense_sum=ALL_REDUCE,
        workers=workers,
        features=numbered_ids(4),
        dense_features=2,
        batch_size=12,
        workloads=tuple(workloads or equal_workloads(12, workers)),
        mechanism="random",
        policy="lru",
        seed=7,
        window=4,
        tables=(TableSpec("rows", 5, optimizer, seed=7, init_scale=0.1),),
        model=ModelSpec("wdl", (8,), replace(optimizer, max_norm=0.0)),
        parameter_servers=tuple(servers),
    )


def small_stream(batches: int) -> list[SampleBatch]:
    """Batches of 12 samples over some 60 ids, a few of them in most samples."""
    rng = np.random.default_rng(3)
    universe = rng.integers(0, 2**64, 60, np.uint64)
    return [
        SampleBatch.of_fields(
            ids=universe[(60 * rng.random((12, 4)) ** 2).astype(int)],
            dense=rng.normal(size=(12, 2)).astype(np.float32),
            labels=rng.integers(0, 2, 12).astype(np.float32),
        )
        for _ in range(batches)
    ]


async def stored_model(job: JobSpec) -> tuple[dict[int, tuple[int, NDArray[np.float32]]], dict[str, NDArray]]:
    """Version and row [W] by id, and dense parameters by name, read from the parameter servers."""
    rows: dict[int, tuple[int, NDArray[np.float32]]] = {}
    dense = b""
    for index, address in enumerate(job.parameter_servers):
        async with ServerClient(address, job.table, timeout=60) as server:
            async for block in server.scan():
                rows |= dict(
                    zip(block.ids.tolist(), zip(block.versions.tolist(), block.rows, strict=True), strict=True)
                )
            if index == 0:
                dense = await server.get_dense()
    return rows, dict(np.load(io.BytesIO(dense)))


def worker_settings(dispatcher: str, name: str) -> dict[str, str]:
    """The settings that a worker needs."""
    return {
        "ESD_WORKER_NAME": name,
        "ESD_WORKER_DISPATCHER": dispatcher,
        "ESD_WORKER_LINK": "1e9",
        "ESD_WORKER_CACHE_ROWS": "64",
    }
