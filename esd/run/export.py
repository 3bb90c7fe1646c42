"""Writes a trained model to a file that numpy reads."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from esd.run.sorted_rows import SortedRows
from esd.services.clients.checkpoints import CheckpointClient, StoredState
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import trainings
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.whole_files import make_folder, write_whole
from esd.services.wire.trained_models import describe_model

_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Parts:
    """An array of a file, in parts that follow each other along the first axis."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: Iterable[NDArray[Any]]


async def export_model(job: JobSpec, path: Path, credentials: Credentials = PLAINTEXT) -> None:
    """Collects a trained model from the parameter servers, after all caches were flushed.

    The file holds `ids` uint64 [R] ascending, `rows` float32 [R, D], `versions` int64 [R], how often each row was
    trained in its present life, and each dense parameter as `dense/NAME`. With several tables the first three are there
    for each of them, as `TABLE/ids` and so on. `model` is a text that describes the model with its features, labels and
    tables (services/wire/trained_models.py).

    Memory holds a part of the rows, however many there are, and the folder of the file has room for the rows twice
    while it is written.

    Raises:
        FailedPrecondition: the rows differ from the job's last checkpoint; the store has lost or changed some.
        OSError: the file cannot be written.
    """
    make_folder(path.parent)
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                ParameterServerConnection(address, timeout=_TIMEOUT_SECONDS, credentials=credentials)
            )
            for address in job.parameter_servers
        ]
        arrays: dict[str, _Parts] = {"model": _whole(np.array(describe_model(job)))}
        for table in job.tables:
            prefix = f"{table.name}/" if len(job.tables) > 1 else ""
            rows = stack.enter_context(SortedRows(table.dimension, path.parent))
            await _collect(table, servers, rows)
            arrays |= {prefix + name: parts for name, parts in _columns_of(rows).items()}
        dense = await TableClient(servers, job.table).get_dense()
        with np.load(io.BytesIO(dense), allow_pickle=False) as parameters:
            arrays |= {f"dense/{name}": _whole(values) for name, values in parameters.items()}
        await asyncio.to_thread(write_whole, path, lambda file: _write_arrays(file, arrays))


def _whole(values: NDArray[Any]) -> _Parts:
    return _Parts(values.shape, values.dtype, [values])


def _columns_of(rows: SortedRows) -> dict[str, _Parts]:
    """Returns the arrays of a table, in the order of its ids."""
    columns = {name: _Parts(*shape, rows.column(name)) for name, shape in rows.shapes.items()}
    versions = columns["versions"]
    return columns | {"versions": _Parts(versions.shape, versions.dtype, map(trainings, versions.parts))}


def _write_arrays(file: BinaryIO, arrays: Mapping[str, _Parts]) -> None:
    """Writes arrays as numpy.savez does, without a whole one in memory."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {
                    "descr": np.lib.format.dtype_to_descr(array.dtype),
                    "fortran_order": False,
                    "shape": array.shape,
                }
                np.lib.format.write_array_header_1_0(member, header)
                for part in array.parts:
                    member.write(np.ascontiguousarray(part).tobytes())


async def _collect(table: TableSpec, servers: Sequence[ParameterServerConnection], rows: SortedRows) -> None:
    """Reads all rows of a table."""
    for index, server in enumerate(servers):
        stored = await CheckpointClient(server, table).get_checkpoint()
        scanned = trained = 0
        async for block in TableClient([server], table).scan():
            scanned += len(block)
            trained += int(trainings(block.versions).sum())
            await asyncio.to_thread(rows.add, block)
        _check_complete(index, stored, scanned, trained)


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
