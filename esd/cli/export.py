"""Writes a trained model to a file that numpy reads."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.jobs import JobSpec
from services.domain.rows import RowBlock
from services.domain.versions import trainings
from services.runtime.security import PLAINTEXT, Credentials

_TIMEOUT_SECONDS = 600.0


async def export_model(job: JobSpec, path: Path, credentials: Credentials = PLAINTEXT) -> None:
    """Collects a trained model from the parameter servers, after all caches were flushed.

    The file holds `ids` uint64 [R] ascending, `rows` float32 [R, D], `versions` int64 [R], how often each row
    was trained in its present life, and each dense parameter as `dense/NAME`.
    """
    width, dimension = job.table.row_width, job.table.dimension
    nothing = RowBlock(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, width), np.float32))
    blocks, dense = [nothing], b""
    for index, address in enumerate(job.parameter_servers):
        async with AsyncParameterServerClient(
            address, job.table, timeout=_TIMEOUT_SECONDS, credentials=credentials
        ) as server:
            blocks += [block async for block in server.scan()]
            if index == 0:
                dense = await server.get_dense()
    ids = np.concatenate([block.ids for block in blocks])
    versions = np.concatenate([block.versions for block in blocks])
    rows = np.concatenate([block.rows for block in blocks])
    order = np.argsort(ids)
    path.parent.mkdir(parents=True, exist_ok=True)
    with np.load(io.BytesIO(dense), allow_pickle=False) as parameters:
        arrays: dict[str, Any] = {
            "ids": ids[order],
            "rows": rows[order, :dimension],
            "versions": trainings(versions[order]),
            **{f"dense/{name}": values for name, values in parameters.items()},
        }
    np.savez(path, **arrays)
