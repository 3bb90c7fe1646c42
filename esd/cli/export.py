"""Writes a trained model to a file that numpy reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from services.clients.parameter_server import AsyncParameterServerClient, StoredState
from services.domain.errors import FailedPrecondition
from services.domain.jobs import JobSpec
from services.domain.rows import RowBlock
from services.domain.versions import trainings
from services.runtime.security import PLAINTEXT, Credentials

_TIMEOUT_SECONDS = 600.0


async def export_model(job: JobSpec, path: Path, credentials: Credentials = PLAINTEXT) -> None:
    """Collects a trained model from the parameter servers, after all caches were flushed.

    The file holds `ids` uint64 [R] ascending, `rows` float32 [R, D], `versions` int64 [R], how often each row
    was trained in its present life, and each dense parameter as `dense/NAME`.

    Raises:
        FailedPrecondition: the rows are not those of the job's last checkpoint; the store has lost or changed some.
    """
    width, dimension = job.table.row_width, job.table.dimension
    nothing = RowBlock(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, width), np.float32))
    blocks, dense = [nothing], b""
    for index, address in enumerate(job.parameter_servers):
        async with AsyncParameterServerClient(
            address, job.table, timeout=_TIMEOUT_SECONDS, credentials=credentials
        ) as server:
            stored = await server.get_checkpoint()
            scanned = [block async for block in server.scan()]
            _check_complete(index, stored, scanned)
            blocks += scanned
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


def _check_complete(shard: int, stored: StoredState, blocks: Sequence[RowBlock]) -> None:
    """Compares what a shard has sent with its last checkpoint, which a job that takes any ends with."""
    if not stored.checkpoint:
        return
    rows = sum(len(block) for block in blocks)
    trained = sum(int(trainings(block.versions).sum()) for block in blocks)
    if (rows, trained) != (stored.checkpoint_rows, stored.checkpoint_trainings):
        raise FailedPrecondition(
            f"shard {shard} holds {rows} rows, trained {trained} times, but checkpoint {stored.checkpoint} was taken "
            f"of {stored.checkpoint_rows} rows, trained {stored.checkpoint_trainings} times: its store has lost or "
            "changed rows, so nothing is exported; `esd checkpoint verify` tells which checkpoints are whole, and "
            "`esd checkpoint restore` goes back to one"
        )
