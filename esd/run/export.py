"""Writes a trained model to a file that numpy reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.checkpoints import CheckpointClient, StoredState
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import trainings
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.whole_files import write_whole
from esd.services.wire.trained_models import describe_model

_TIMEOUT_SECONDS = 600.0


async def export_model(job: JobSpec, path: Path, credentials: Credentials = PLAINTEXT) -> None:
    """Collects a trained model from the parameter servers, after all caches were flushed.

    The file holds `ids` uint64 [R] ascending, `rows` float32 [R, D], `versions` int64 [R], how often each row was
    trained in its present life, and each dense parameter as `dense/NAME`. With several tables the first three are there
    for each of them, as `TABLE/ids` and so on. `model` is a text that describes the model with its features, labels and
    tables (services/wire/trained_models.py).

    Raises:
        FailedPrecondition: the rows differ from the job's last checkpoint; the store has lost or changed some.
    """
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                ParameterServerConnection(address, timeout=_TIMEOUT_SECONDS, credentials=credentials)
            )
            for address in job.parameter_servers
        ]
        arrays: dict[str, Any] = {"model": np.array(describe_model(job))}
        for table in job.tables:
            prefix = f"{table.name}/" if len(job.tables) > 1 else ""
            columns = await _columns_of(table, servers)
            arrays |= {prefix + name: values for name, values in columns.items()}
        dense = await TableClient(servers, job.table).get_dense()
    with np.load(io.BytesIO(dense), allow_pickle=False) as parameters:
        arrays |= {f"dense/{name}": values for name, values in parameters.items()}
    write_whole(path, lambda file: np.savez(file, **arrays))


async def _columns_of(table: TableSpec, servers: Sequence[ParameterServerConnection]) -> dict[str, NDArray[Any]]:
    """Reads all rows of a table, in the order of their ids."""
    blocks = [RowBlock(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, table.row_width), np.float32))]
    for index, server in enumerate(servers):
        stored = await CheckpointClient(server, table).get_checkpoint()
        scanned = [block async for block in TableClient([server], table).scan()]
        _check_complete(index, stored, scanned)
        blocks += scanned
    ids = np.concatenate([block.ids for block in blocks])
    versions = np.concatenate([block.versions for block in blocks])
    rows = np.concatenate([block.rows for block in blocks])
    order = np.argsort(ids)
    return {"ids": ids[order], "rows": rows[order, : table.dimension], "versions": trainings(versions[order])}


def _check_complete(shard: int, stored: StoredState, blocks: Sequence[RowBlock]) -> None:
    """Compares the rows of a shard with its last checkpoint, with which a job that takes checkpoints ends."""
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
