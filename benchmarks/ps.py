"""Throughput of the parameter server over gRPC: rows pulled and pushed by one client, per store and row width.

    python -m benchmarks.ps [--store memory --store redis --store redis://...] [--dimension 16 --dimension 512]

`redis` starts a redis-server of its own that keeps every acknowledged write (appendfsync always).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.domain.rows import GradientBlock, Push, RowBlock
from services.domain.tables import OptimizerSpec, TableSpec
from services.runtime.channel import channel
from services.wire.rows import encode_pull, push_chunks
from services.wire.tables import encode_table
from tests.support.redis_server import redis_server


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """What one client gets from one server: medians over the repetitions. MB are 10^6 bytes of rows."""

    store: str
    dimension: int
    rows: int
    pull_mb_per_second: float
    pull_rows_per_second: float
    push_mb_per_second: float
    push_rows_per_second: float


async def measure(store: str, dimension: int, megabytes: float = 32, repetitions: int = 5) -> Throughput:
    """Moves `megabytes` of rows to and from a new server over `store` (`memory`, `redis` or a URL), repeatedly."""
    spec = TableSpec(f"bench-{os.getpid()}-{dimension}", dimension, OptimizerSpec(), seed=0, init_scale=0.01)
    count = max(1, int(megabytes * 1e6 / spec.row_bytes))
    ids = np.unique(np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64))
    pulls, pushes = [], []
    with _store_url(store) as url:
        async with _server(url) as address, channel(address) as opened:
            stub = ps_pb2_grpc.ParameterServerStub(opened)  # type: ignore[no-untyped-call]
            await stub.CreateTable(ps_pb2.CreateTableRequest(table=encode_table(spec)), timeout=10)
            for version in range(1, repetitions + 1):
                pushes.append(await _seconds(_push(stub, spec, ids, version)))
                pulls.append(await _seconds(_pull(stub, spec, ids, version)))
    pull, push = statistics.median(pulls), statistics.median(pushes)
    megabytes = len(ids) * spec.row_bytes / 1e6
    return Throughput(
        store=store.partition(":")[0],
        dimension=dimension,
        rows=len(ids),
        pull_mb_per_second=megabytes / pull,
        pull_rows_per_second=len(ids) / pull,
        push_mb_per_second=megabytes / push,
        push_rows_per_second=len(ids) / push,
    )


async def _push(stub: ps_pb2_grpc.ParameterServerStub, spec: TableSpec, ids: NDArray[np.uint64], version: int) -> None:
    none, numbers = ids[:0], np.empty(0, np.int64)
    rows = np.broadcast_to(np.float32(0.5), (len(ids), spec.row_width))
    push = Push(
        RowBlock(ids, np.full(len(ids), version), rows),
        GradientBlock(none, numbers, none, numbers, np.empty((0, spec.dimension), np.float32), worker=0),
    )
    answer = await stub.Push(push_chunks(push, spec), timeout=120)
    assert answer.stored == len(ids), answer  # noqa: S101 - a benchmark of something else would be worthless


async def _pull(stub: ps_pb2_grpc.ParameterServerStub, spec: TableSpec, ids: NDArray[np.uint64], version: int) -> None:
    request = encode_pull(spec.name, ids, np.full(len(ids), version))
    received = 0
    async for response in stub.Pull(request, timeout=120):
        received += len(np.frombuffer(response.rows.rows, np.float32))
    assert received == len(ids) * spec.row_width, received  # noqa: S101


async def _seconds(work: Awaitable[None]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


@contextlib.contextmanager
def _store_url(store: str) -> Iterator[str]:
    if store != "redis":
        yield store
        return
    with tempfile.TemporaryDirectory() as directory, redis_server(Path(directory)) as server:
        yield server.url


@contextlib.asynccontextmanager
async def _server(store: str) -> AsyncIterator[str]:
    """Runs a parameter server in a process of its own, and yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ps_server",
        env={**os.environ, "ESD_PS_STORE": store, "ESD_PS_METRICS_PORT": "none", "ESD_PS_LOG_LEVEL": "error"},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None  # noqa: S101 - started with a pipe
        line = await process.stdout.readline()
        if not line:
            raise SystemExit("the parameter server did not start")
        yield json.loads(line)["address"]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def main() -> None:
    """Prints one JSON object per store and dimension."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", help="memory, redis or a URL; default memory and redis")
    parser.add_argument("--dimension", action="append", type=int, help="default 16, 128 and 512")
    parser.add_argument("--megabytes", type=float, default=32, help="of rows, moved each way per repetition")
    arguments = parser.parse_args()
    for store in arguments.store or ["memory", "redis"]:
        for dimension in arguments.dimension or [16, 128, 512]:
            result = asyncio.run(measure(store, dimension, arguments.megabytes))
            numbers = {k: round(v) if isinstance(v, float) else v for k, v in dataclasses.asdict(result).items()}
            print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main()
