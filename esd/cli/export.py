"""Writes a trained model to a file that numpy reads."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.domain.jobs import JobSpec
from services.domain.versions import trainings
from services.runtime.channel import channel
from services.runtime.security import PLAINTEXT, Credentials
from services.runtime.status import domain_errors

_DEADLINE_SECONDS = 600.0


async def export_model(job: JobSpec, path: Path, credentials: Credentials = PLAINTEXT) -> None:
    """Collects a trained model from the parameter servers, after all caches were flushed.

    The file holds `ids` uint64 [R] ascending, `rows` float32 [R, D], `versions` int64 [R], how often each row
    was trained in its present life, and each dense parameter as `dense/NAME`.
    """
    width, dimension = job.table.row_width, job.table.dimension
    shards = [await _scan(address, credentials, job.table.name, width) for address in job.parameter_servers]
    ids, versions, rows = (np.concatenate(columns) for columns in zip(*shards, strict=True))
    order = np.argsort(ids)
    dense = await _dense(job.parameter_servers[0], credentials, job.table.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        "ids": ids[order],
        "rows": rows[order, :dimension],
        "versions": trainings(versions[order]),
        **{f"dense/{name}": values for name, values in dense.items()},
    }
    np.savez(path, **arrays)


async def _scan(
    address: str, credentials: Credentials, table: str, width: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]]:
    """Every stored row of one shard, optimizer state included."""
    ids, versions, rows = bytearray(), bytearray(), bytearray()
    async with channel(address, credentials=credentials) as connection:
        stub = ps_pb2_grpc.ParameterServerStub(connection)  # type: ignore[no-untyped-call]
        with domain_errors():
            async for chunk in stub.Scan(ps_pb2.ScanRequest(table=table), timeout=_DEADLINE_SECONDS):
                ids += chunk.ids
                versions += chunk.versions
                rows += chunk.rows
    return (
        np.frombuffer(ids, np.uint64),
        np.frombuffer(versions, np.int64),
        np.frombuffer(rows, np.float32).reshape(-1, width),
    )


async def _dense(address: str, credentials: Credentials, table: str) -> dict[str, NDArray[np.float32]]:
    """The dense parameters by name."""
    data = bytearray()
    async with channel(address, credentials=credentials) as connection:
        stub = ps_pb2_grpc.ParameterServerStub(connection)  # type: ignore[no-untyped-call]
        with domain_errors():
            async for chunk in stub.GetDense(ps_pb2.GetDenseRequest(table=table), timeout=_DEADLINE_SECONDS):
                data += chunk.data
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
