"""Writes a trained model from the parameter servers to a folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from esd.model.files import CONFIG, FORMAT, HISTORY, MLMODEL, SCHEMA, FolderWriter, HashedFile, new_folder
from esd.model.mlflow import mlmodel_text
from esd.model.schema_text import schema_text
from esd.model.sorted_rows import SortedRows
from esd.model.table import write_table
from esd.run.events import Listener, ignore
from esd.run.graphs import write_graphs
from esd.run.lineage import UNKNOWN, Lineage
from esd.services.clients.checkpoints import CheckpointClient, StoredState
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import trainings
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.wire.trained_models import PARAMETERS, dense_arrays, describe_model

_TIMEOUT_SECONDS = 600.0
_LOOKED_UP_ROWS = 16_384  # at a time, at a checkpoint


async def export_model(
    job: JobSpec,
    path: Path,
    credentials: Credentials = PLAINTEXT,
    listener: Listener = ignore,
    *,
    lineage: Lineage = UNKNOWN,
    checkpoint: int = 0,
    graphs: bool | None = None,
) -> None:
    """Collects a trained model from the parameter servers into a folder (esd.model.files).

    The rows are streamed, so that memory does not grow with the tables; while they are sorted they take their room on
    the disk twice. Without a checkpoint all caches must have been flushed.

    Args:
        job: that has trained the model.
        path: the folder; a former model there stays until the new one is whole.
        credentials: for the parameter servers.
        listener: gets `GraphsNotWritten`.
        lineage: where the model comes from.
        checkpoint: a kept checkpoint, of which the model is; 0: the latest values. Rows that the tables have forgotten
            since then are missing.
        graphs: whether `model.pt2` and `model.onnx` are made; None: they are, as far as that is possible.

    Raises:
        FailedPrecondition: the rows differ from the job's last checkpoint, since the store has lost or changed some; or
            a graph is required and cannot be made.
        NotFound: the checkpoint is not kept.
        InvalidArgument: the path names something else than a model.
    """
    with new_folder(path) as folder:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(
                    ParameterServerConnection(address, timeout=_TIMEOUT_SECONDS, credentials=credentials)
                )
                for address in job.parameter_servers
            ]
            for table in job.tables:
                with SortedRows(table.dimension, folder.path) as rows:
                    await _collect(table, servers, checkpoint, rows)
                    await asyncio.to_thread(write_table, folder, table, rows)
            dense = await TableClient(servers, job.table).get_dense(checkpoint=checkpoint)
        arrays = {name: np.ascontiguousarray(values) for name, values in dense_arrays(dense).items()}
        folder.write(PARAMETERS, save(arrays))
        await _finish(folder, job, lineage, checkpoint, graphs, listener)


async def complete_model(
    job: JobSpec, path: Path, checkpoint: int, lineage: Lineage, graphs: bool | None, listener: Listener
) -> None:
    """Gives a model's folder, whose model is of a checkpoint, graphs and lineage; arguments as of `export_model`."""
    with new_folder(path) as folder:
        folder.take(path)
        await _finish(folder, job, lineage, checkpoint, graphs, listener)


async def _finish(
    folder: FolderWriter,
    job: JobSpec,
    lineage: Lineage,
    checkpoint: int,
    graphs: bool | None,
    listener: Listener,
) -> None:
    if graphs is not False:
        for name in await write_graphs(job, folder.path, listener, required=graphs is True):
            folder.add(name)
    _write_lineage(folder, job, lineage, checkpoint)


async def _collect(
    table: TableSpec, servers: Sequence[ParameterServerConnection], checkpoint: int, rows: SortedRows
) -> None:
    """Reads all rows of a table."""
    for index, server in enumerate(servers):
        stored = await CheckpointClient(server, table).get_checkpoint()
        client = TableClient([server], table)
        count = trained = 0
        async for block in client.scan():
            count += len(block)
            trained += int(trainings(block.versions).sum())
            if not checkpoint:
                await asyncio.to_thread(rows.add, block)
                continue
            for piece in block.pieces(_LOOKED_UP_ROWS):
                versions, values = await client.look_up(piece.ids, checkpoint=checkpoint)
                there = versions > 0
                await asyncio.to_thread(rows.add, RowBlock(piece.ids, versions, values)[there])
        if not checkpoint:
            _check_complete(index, stored, count, trained)


def _check_complete(shard: int, stored: StoredState, rows: int, trained: int) -> None:
    """Compares the rows of a shard with its last checkpoint, with which a job that takes checkpoints ends."""
    if not stored.checkpoint:
        return
    if (rows, trained) != (stored.checkpoint_rows, stored.checkpoint_trainings):
        raise FailedPrecondition(
            f"shard {shard} holds {rows} rows, trained {trained} times, but checkpoint {stored.checkpoint} was taken "
            f"of {stored.checkpoint_rows} rows, trained {stored.checkpoint_trainings} times: its store has lost or "
            "changed rows, so nothing is exported; `esd checkpoint verify` tells which checkpoints are whole, and "
            "`esd checkpoint restore` goes back to one"
        )


def _write_lineage(folder: FolderWriter, job: JobSpec, lineage: Lineage, checkpoint: int) -> None:
    if lineage.schema is not None:
        folder.write(SCHEMA, schema_text(lineage.schema).encode())
    config = {
        "format": FORMAT,
        "model": describe_model(job),
        "checkpoint": checkpoint,
        **lineage.described(job),
    }
    folder.write(CONFIG, (json.dumps(config, indent=1) + "\n").encode())
    folder.write(MLMODEL, mlmodel_text().encode())
    if lineage.history and find_spec("pyarrow") is not None:
        with folder.open(HISTORY) as file:
            _write_history(file, lineage.history)


def _write_history(file: HashedFile, lines: Sequence[Mapping[str, Any]]) -> None:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    names = dict.fromkeys(name for line in lines for name in line)
    table = arrow.Table.from_pylist([{name: line.get(name) for name in names} for line in lines])
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink)
    file.write(sink.getvalue().to_pybytes())
