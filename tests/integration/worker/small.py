"""A small job, its stream, and the model that the parameter servers hold at the end."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.domain.batches import SampleBatch
from services.domain.jobs import Criterion, JobSpec, ModelSpec, equal_workloads
from services.domain.tables import OptimizerSpec, TableSpec
from services.runtime.channel import channel


def small_job(
    servers: Sequence[str], workers: int, optimizer: OptimizerSpec, workloads: Sequence[int] | None = None
) -> JobSpec:
    """Four fields, two dense features, 12 samples per batch, rows of 5 values."""
    return JobSpec(
        name="job",
        workers=workers,
        fields=4,
        dense_features=2,
        batch_size=12,
        workloads=tuple(workloads or equal_workloads(12, workers)),
        mechanism="random",
        alpha=0.0,
        criterion=Criterion.MIN2_MIN,
        policy="lru",
        seed=7,
        window=4,
        table=TableSpec("rows", 5, optimizer, seed=7, init_scale=0.1),
        model=ModelSpec("wdl", (8,), optimizer),
        parameter_servers=tuple(servers),
    )


def small_stream(batches: int) -> list[SampleBatch]:
    """Batches of 12 samples over some 60 ids, a few of them in most samples."""
    rng = np.random.default_rng(3)
    universe = rng.integers(0, 2**64, 60, np.uint64)
    return [
        SampleBatch(
            ids=universe[(60 * rng.random((12, 4)) ** 2).astype(int)],
            dense=rng.normal(size=(12, 2)).astype(np.float32),
            labels=rng.integers(0, 2, 12).astype(np.float32),
        )
        for _ in range(batches)
    ]


async def stored_model(job: JobSpec) -> tuple[dict[int, tuple[int, NDArray[np.float32]]], dict[str, NDArray]]:
    """Version and row [W] by id, and dense parameters by name, read from the parameter servers."""
    rows: dict[int, tuple[int, NDArray[np.float32]]] = {}
    for address in job.parameter_servers:
        async with channel(address) as to_server:
            stub = ps_pb2_grpc.ParameterServerStub(to_server)
            async for chunk in stub.Scan(ps_pb2.ScanRequest(table=job.table.name), timeout=30):
                ids, versions = np.frombuffer(chunk.ids, np.uint64), np.frombuffer(chunk.versions, np.int64)
                values = np.frombuffer(chunk.rows, np.float32).reshape(len(ids), -1)
                rows |= dict(zip(ids.tolist(), zip(versions.tolist(), values, strict=True), strict=True))
    async with channel(job.parameter_servers[0]) as to_server:
        stub = ps_pb2_grpc.ParameterServerStub(to_server)
        chunks = [c.data async for c in stub.GetDense(ps_pb2.GetDenseRequest(table=job.table.name), timeout=30)]
    return rows, dict(np.load(io.BytesIO(b"".join(chunks))))
