"""Rows between clients and a parameter server, per store and row width: rates, and processor time at each end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.e2e.processors import ProcessorTime
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.rows import RowClient
from esd.services.domain.parcels import NO_PULLS, Parcel, Pulls
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.runtime.memory import keep_freed_memory
from testbed.redis_server import redis_server

STORES = ("memory", "directory", "redis")
DIMENSIONS = (16, 128, 512)

_CLIENTS = 4
_PAIR_ROWS = 32  # of a push, and of the pull beside it
_PAIRS = 100  # of each client


@dataclass(frozen=True, slots=True)
class Moved:
    """One way of moving rows: medians over the repetitions.

    Attributes:
        per_second: megabytes (10^6 bytes of rows), or pairs.
        server_seconds: processor time of the parameter server's process per megabyte or pair.
        client_seconds: processor time of all clients, which are one process, per megabyte or pair.
    """

    per_second: float
    server_seconds: float
    client_seconds: float

    @property
    def per_processor_second(self) -> float:
        """How much of it a second of processor time moves, both ends counted."""
        return 1 / (self.server_seconds + self.client_seconds)

    @classmethod
    def median(cls, repetitions: Sequence[Moved]) -> Moved:
        """Returns the medians, figure by figure."""
        return cls(*(statistics.median(getattr(each, figure.name) for each in repetitions) for figure in fields(cls)))


@dataclass(frozen=True, slots=True)
class Throughput:
    """The throughput of one store at one row width.

    Attributes:
        store: `memory`, `directory` (memory with a checkpoint directory), or a kind of URL.
        dimension: values per row; rows are trained with SGD, so they have no more.
        pushes: of many rows at once, by one client, in MB.
        pulls: likewise.
        pairs: a push and a pull of 32 rows each, in one frame, by each of four clients one pair after the other.
    """

    store: str
    dimension: int
    pushes: Moved
    pulls: Moved
    pairs: Moved


async def measure(store: str, dimension: int, megabytes: float, repetitions: int) -> Throughput:
    """Moves rows to and from a new server over `store`, which is one of STORES or a URL, repeatedly.

    Redis keeps every acknowledged write (appendfsync always); its own processor time is not counted.
    """
    keep_freed_memory()  # as a worker's process does
    spec = TableSpec(f"bench-{os.getpid()}-{dimension}", dimension, OptimizerSpec(), seed=0, init_scale=0.01)
    count = max(_CLIENTS * _PAIR_ROWS, int(megabytes * 1e6 / spec.row_bytes))
    ids = np.unique(np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64))
    pushes, pulls, pairs = [], [], []
    with _settings(store) as settings:
        async with running_server(settings) as (address, pid), contextlib.AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(ParameterServerConnection(address)) for _ in range(_CLIENTS)]
            clients = [RowClient([server], spec) for server in servers]
            await clients[0].create(b"")
            whole = len(ids) * spec.row_bytes / 1e6
            version = 0
            for _ in range(repetitions):
                version += 1
                pushes.append(await _measured(clients[0].push(_push(spec, ids, version)), whole, pid))
                pulls.append(await _measured(_pull(clients[0], spec, ids, version), whole, pid))
                pairs.append(await _measured(_all_pairs(clients, spec, ids, version), _CLIENTS * _PAIRS, pid))
                version += _PAIRS
    return Throughput(store.partition(":")[0], dimension, *map(Moved.median, (pushes, pulls, pairs)))


def _push(spec: TableSpec, ids: NDArray[np.uint64], version: int, pulls: Pulls = NO_PULLS) -> Parcel:
    rows = np.full((len(ids), spec.row_width), 0.5, np.float32)
    return Parcel(RowBlock(ids, np.full(len(ids), version), rows), pulls=pulls)


async def _pull(client: RowClient, spec: TableSpec, ids: NDArray[np.uint64], version: int) -> None:
    rows = np.zeros((len(ids), spec.row_width), np.float32)
    await client.pull(ids, np.full(len(ids), version), rows, np.arange(len(ids)))
    assert (rows == 0.5).all()  # noqa: S101 - a benchmark of something else would be worthless


async def _all_pairs(clients: Sequence[RowClient], spec: TableSpec, ids: NDArray[np.uint64], version: int) -> None:
    """Each client pushes its own rows to ever higher versions, and pulls the rows that it has pushed before."""

    async def pairs(client: RowClient, own: NDArray[np.uint64]) -> None:
        rows = np.zeros((_PAIR_ROWS, spec.row_width), np.float32)
        for step in range(_PAIRS):
            half, other = (own[each * _PAIR_ROWS :][:_PAIR_ROWS] for each in (step % 2, 1 - step % 2))
            pulls = Pulls(other, np.full(_PAIR_ROWS, version + step), np.arange(_PAIR_ROWS))
            await client.carry(_push(spec, half, version + step + 1, pulls), rows)
            assert (rows == 0.5).all()  # noqa: S101

    await asyncio.gather(
        *(pairs(client, ids[2 * i * _PAIR_ROWS :][: 2 * _PAIR_ROWS]) for i, client in enumerate(clients))
    )


async def _measured(work: Awaitable[object], amount: float, pid: int) -> Moved:
    server, client, started = ProcessorTime.of(pid).total, time.process_time(), time.perf_counter()
    await work
    seconds = time.perf_counter() - started
    used = ProcessorTime.of(pid).total - server, time.process_time() - client
    return Moved(amount / seconds, *(each / amount for each in used))


@contextlib.contextmanager
def _settings(store: str) -> Iterator[Mapping[str, str]]:
    """Yields the settings of a server on this store."""
    with tempfile.TemporaryDirectory(prefix="esd-bench-") as directory, contextlib.ExitStack() as stack:
        if store == "directory":
            yield {"ESD_PS_STORE": "memory", "ESD_PS_CHECKPOINT_DIR": directory}
        elif store == "redis":
            yield {"ESD_PS_STORE": stack.enter_context(redis_server(Path(directory))).url}
        else:
            yield {"ESD_PS_STORE": store}


@contextlib.asynccontextmanager
async def running_server(settings: Mapping[str, str]) -> AsyncIterator[tuple[str, int]]:
    """Runs a parameter server in a process of its own, and yields its address and its process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.ps_server",
        env={**os.environ, **settings, "ESD_PS_METRICS_PORT": "none", "ESD_PS_LOG_LEVEL": "error"},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        line = await process.stdout.readline()
        if not line:
            raise SystemExit("the parameter server did not start")
        yield json.loads(line)["address"], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
