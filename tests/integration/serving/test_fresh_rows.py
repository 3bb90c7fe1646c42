"""A served model follows the job that trains it, and has the scores of the trained model at the job's end."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np

import esd
from esd.protos import inference_pb2, inference_pb2_grpc
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.train import train_attached
from esd.services.domain.batches import SampleBatch
from tests.support.served_models import served

OPTIONS = RunOptions(
    data="flights", model="wdl", workers=2, links="1g", batch=64, dim=8, hidden="16", cache_rows=4000,
    cache_ratio=None, iterations=20, checkpoint_every=20, seed=1,
)  # fmt: skip


class Served:
    """A served model: its scores of one batch, and its metrics."""

    def __init__(self, ready: dict[str, str], channel: grpc.aio.Channel, batch: SampleBatch) -> None:
        self._stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._metrics = ready["metrics"]
        tensor = inference_pb2.ModelInferRequest.InferInputTensor
        count = len(batch)
        self._request = inference_pb2.ModelInferRequest(
            model_name="shop",
            inputs=[
                tensor(name="ids", datatype="UINT64", shape=[count, batch.ids.size // count]),
                tensor(name="dense", datatype="FP32", shape=[count, batch.dense.shape[1]]),
            ],
            raw_input_contents=[batch.ids.tobytes(), batch.dense.tobytes()],
        )

    async def scores(self) -> np.ndarray:
        """The scores of the batch."""
        answer = await self._stub.ModelInfer(self._request, timeout=60)
        return np.frombuffer(answer.raw_output_contents[0], np.float32)

    async def until_scores_are(self, expected: np.ndarray) -> None:
        """Waits until the scores are these, bit for bit."""
        async with asyncio.timeout(100):
            while not np.array_equal(await self.scores(), expected):  # noqa: ASYNC110 - scores are asked for
                await asyncio.sleep(0.02)

    async def metric(self, name: str) -> float:
        """The value of a metric without labels."""

        def read() -> str:
            with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=60) as page:
                return page.read().decode()

        page = await asyncio.to_thread(read)
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))

    async def until(self, name: str, value: float) -> None:
        """Waits until a metric has this value."""
        async with asyncio.timeout(100):
            while await self.metric(name) != value:  # noqa: ASYNC110 - metrics tell of nothing
                await asyncio.sleep(0.05)


@asynccontextmanager
async def following(folder: Path, servers: str, batch: SampleBatch) -> AsyncIterator[Served]:
    """Serves a folder in a process that follows parameter servers."""
    server = served(folder, "--fresh", servers)
    ready = await asyncio.to_thread(server.__enter__)
    try:
        async with grpc.aio.insecure_channel(ready["address"]) as channel:
            yield Served(ready, channel, batch)
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


def some_samples() -> SampleBatch:
    """Samples of the stream, of which the job trains some."""
    return next(iter(OPTIONS.open(256)))


async def test_at_the_end_of_a_job_the_served_scores_are_those_of_its_model(tmp_path: Path) -> None:
    batch = some_samples()
    async with LocalServices(
        shards=2,
        worker_links=OPTIONS.bandwidths(),
        cache_rows=[4000] * 2,
        logs=tmp_path,
        checkpoint_dir=tmp_path / "kept",
    ) as cluster:
        servers = ",".join(server.address for server in cluster.parameter_servers)
        where = {"dispatcher": cluster.dispatcher.address, "parameter_servers": servers}
        await train_attached(OPTIONS, table="mine", out=tmp_path / "first", **where)
        first = esd.load(tmp_path / "first" / "model").scores(batch)[:, 0]
        async with following(tmp_path / "first" / "model", servers, batch) as model:
            await model.until("esd_model_fresh_connected", 1)
            await model.until_scores_are(first)
            for worker in cluster.workers:  # they have ended with their job
                await worker.process.wait()
                await worker.restart()
            further = replace(OPTIONS, iterations=60)
            await train_attached(further, continue_from="mine", out=tmp_path / "second", **where)
            second = esd.load(tmp_path / "second" / "model").scores(batch)[:, 0]
            assert not np.array_equal(first, second)
            await model.until_scores_are(second)
            await model.until("esd_model_fresh_lag_seconds", 0)
            assert await model.metric("esd_model_fresh_rows_total") > 0
            # A parameter server that is killed comes back with its last checkpoint, which is the end of the job.
            anew = await model.metric("esd_model_fresh_anew_total")
            cluster.parameter_servers[0].process.kill()
            await cluster.parameter_servers[0].process.wait()
            await model.until("esd_model_fresh_connected", 0)
            await cluster.parameter_servers[0].restart()
            await model.until("esd_model_fresh_connected", 1)
            await model.until("esd_model_fresh_anew_total", anew + 1)
            await model.until_scores_are(second)
