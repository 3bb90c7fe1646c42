"""The lag of a served model behind the job that trains it: `python -m benchmarks.fresh_rows`.

Trains `wdl` on flights for a few iterations and serves its model; then trains on for 500 iterations while the served
model follows, asked for the scores of single samples all the time. Gives the time from a row's change at a parameter
server to its being served, as upper bounds of the shares of rounds; and whether, after the end of the job, the served
scores equal the scores of its exported model, bit for bit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.serving import request_of
from esd.model.trained import TrainedModel
from esd.protos import inference_pb2_grpc
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.train import train_attached
from esd.services.domain.batches import SampleBatch

_TIMEOUT = 60.0
_CACHE_ROWS = 8000
_LAG = "esd_model_fresh_seconds"


@dataclass(frozen=True, slots=True)
class Served:
    """A served model.

    Attributes:
        stub: makes its calls.
        metrics: `host:port` of its metrics page.
    """

    stub: Any
    metrics: str

    async def scores(self, batch: SampleBatch) -> np.ndarray[Any, Any]:
        """Returns the scores of samples."""
        answer = await self.stub.ModelInfer(request_of(batch), timeout=_TIMEOUT)
        return np.frombuffer(answer.raw_output_contents[0], np.float32)

    async def metric(self, begin: str) -> dict[str, float]:
        """Returns the metrics whose lines have this beginning, by name and labels."""

        def read() -> str:
            with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=_TIMEOUT) as page:
                text: str = page.read().decode()
                return text

        lines = (await asyncio.to_thread(read)).splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(begin)}


@asynccontextmanager
async def following(folder: Path, servers: str) -> AsyncIterator[Served]:
    """Serves a folder that follows parameter servers while the block runs."""
    command = [sys.executable, "-m", "esd.cli", "serve", "model", str(folder), "--name", "model", "--threads", "1"]
    process = await asyncio.create_subprocess_exec(
        *command, "--fresh", servers, "--log-level", "error", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None  # noqa: S101 - for mypy
        ready = json.loads(await process.stdout.readline())
        async with grpc.aio.insecure_channel(ready["address"]) as channel:
            stub: Any = inference_pb2_grpc.GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call] # generated
            yield Served(stub, ready["metrics"])
    finally:
        process.terminate()
        await process.wait()


async def asked(served: Served, batches: Sequence[SampleBatch]) -> int:
    """Asks for scores until it is cancelled; returns the number of answers."""
    answers = 0
    try:
        while True:
            await served.scores(batches[answers % len(batches)][:1])
            answers += 1
    except asyncio.CancelledError:
        return answers


async def measure(options: RunOptions, base: int, place: Path) -> dict[str, object]:
    """Trains, serves, trains on, and compares."""
    read = iter(options.open(256))
    batches = [next(read) for _ in range(16)]
    links = options.bandwidths()
    async with LocalServices(
        shards=2, worker_links=links, cache_rows=[_CACHE_ROWS] * len(links), logs=place, checkpoint_dir=place / "kept"
    ) as cluster:
        servers = ",".join(server.address for server in cluster.parameter_servers)
        train = partial(train_attached, dispatcher=cluster.dispatcher.address, parameter_servers=servers)
        await train(replace(options, iterations=base), table="followed", out=place / "base")
        for worker in cluster.workers:
            await worker.process.wait()
            await worker.restart()
        async with following(place / "base" / "model", servers) as served:
            asking = asyncio.create_task(asked(served, batches))
            run = await train(options, continue_from="followed", out=place / "end")
            expected = TrainedModel(place / "end" / "model", threads=1).scores(batches[0])[:, 0]
            async with asyncio.timeout(_TIMEOUT):
                while any((await served.metric("esd_model_fresh_lag_seconds")).values()):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.05)
            scores = await served.scores(batches[0])
            lags = await served.metric(_LAG)
            asking.cancel()
            answers = await asking
            rows = await served.metric("esd_model_fresh_rows_total")
    rounds = lags[f"{_LAG}_count"]
    shares = {
        name.partition('le="')[2].partition('"')[0]: count / rounds
        for name, count in lags.items()
        if name.startswith(f"{_LAG}_bucket")
    }
    return {
        "iterations": run.state.iterations_confirmed,
        "seconds": run.result()["seconds"],
        "rounds": rounds,
        "rows": sum(rows.values()),
        "mean_lag_seconds": lags[f"{_LAG}_sum"] / rounds,
        "share_of_rounds_within_seconds": shares,
        "answers_meanwhile": answers,
        "equal_at_the_end": bool(np.array_equal(scores, expected)),
    }


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fresh_rows", description=__doc__)
    parser.add_argument("--iterations", type=int, default=500, help="that the served model follows")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sync", default="on-demand", help="when rows are pushed")
    parser.add_argument("--checkpoint-every", type=int, default=100, help="iterations between checkpoints")
    arguments = parser.parse_args()
    options = RunOptions(
        data="flights",
        model="wdl",
        workers=arguments.workers,
        links="1g",
        batch=128,
        cache_rows=_CACHE_ROWS,
        cache_ratio=None,
        iterations=arguments.iterations,
        checkpoint_every=arguments.checkpoint_every,
        sync=arguments.sync,
    )
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(options, 20, Path(place)))))


if __name__ == "__main__":
    main()
