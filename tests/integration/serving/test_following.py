"""A served model follows a parameter server: rows over its folder's, breaks, newer folders, limits, refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from esd.model.trained import load
from esd.protos import inference_pb2_grpc
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.rows import RowClient
from esd.services.domain.features import Feature
from esd.services.domain.ids import in_table
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.runtime import serving_metrics as metrics
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.served_models import IDS, job_of_ids, request_of, served_here, write_model
from tests.support.server_client import ServerClient

JOB = job_of_ids()
DIMENSION = JOB.table.dimension


class System:
    """A parameter server with the rows of a folder, and the folder served."""

    def __init__(self, server: ServerClient, stub: inference_pb2_grpc.GRPCInferenceServiceStub) -> None:
        self.server = server
        self._stub = stub
        self._version = 1

    async def push(self, ids: list[int] | np.ndarray, value: float) -> None:
        """Stores rows of one value at the parameter server."""
        self._version += 1
        ids = np.asarray(ids, np.uint64)
        rows = np.full((len(ids), JOB.table.row_width), value, np.float32)
        await self.server.push(Parcel(RowBlock(ids, np.full(len(ids), self._version, np.int64), rows)))

    async def score(self, *ids: int) -> float:
        """The score of a sample of two ids: the sum of all values of their rows."""
        answer = await self._stub.ModelInfer(request_of(np.array([ids], np.uint64)), timeout=60)
        return float(np.frombuffer(answer.raw_output_contents[0], np.float32)[0])

    async def until(self, *ids: int, score: float) -> None:
        """Waits until a sample has a score."""
        async with asyncio.timeout(60):
            while await self.score(*ids) != pytest.approx(score, rel=1e-6):  # noqa: ASYNC110 - scores are asked for
                await asyncio.sleep(0.01)


@asynccontextmanager
async def system(
    folder: Path, *, cut: list[Any] | None = None, further: Sequence[TableSpec] = (), **settings: Any
) -> AsyncIterator[System]:
    """Serves a folder that follows a parameter server, through a proxy that is added to `cut` if that is a list.

    The server has the table of JOB and further ones.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0))
        )
        client = await stack.enter_async_context(ServerClient(server.address, JOB.table))
        for table in (JOB.table, *further):
            await client.server.create_table(table)
        values = np.zeros((len(IDS), JOB.table.row_width), np.float32)
        values[:, :DIMENSION] = IDS[:, None]
        await client.push(Parcel(RowBlock(IDS, np.ones(len(IDS), np.int64), values)))
        address = server.address
        if cut is not None:
            cut.append(await stack.enter_async_context(CuttableProxy.running(address)))
            address = cut[0].address
        serving = await stack.enter_async_context(served_here(folder, fresh=address, **settings))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(serving.address))
        yield System(client, inference_pb2_grpc.GRPCInferenceServiceStub(channel))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "model", JOB)
    return tmp_path / "model"


@pytest.fixture
def told() -> Any:
    """The warnings and errors of following, as a queue."""
    texts = asyncio.Queue[str]()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.put_nowait(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("esd.serving.follow")
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


def value(metric: Any) -> float:
    """The value of a metric without labels."""
    return float(next(iter(metric.collect())).samples[0].value)


async def until_metric(metric: Any, wanted: float) -> None:
    async with asyncio.timeout(60):
        while value(metric) != wanted:  # noqa: ASYNC110 - metrics tell of nothing
            await asyncio.sleep(0.01)


async def test_new_changed_and_removed_rows_are_served(folder: Path) -> None:
    initial = load(folder).table().initial(np.array([5], np.uint64)).sum()
    async with system(folder) as served:
        await served.until(3, 4, score=7 * DIMENSION)
        await served.push([3, 1000], 0.5)
        await served.until(3, 1000, score=DIMENSION)
        await served.server.forget(np.array([5], np.uint64), 2**30)
        await served.until(5, 4, score=float(initial) + 4 * DIMENSION)
        await until_metric(metrics.FRESH_LAG, 0)
        assert value(metrics.FRESH_CONNECTED) == 1
    assert value(metrics.FRESH_CONNECTED) == 0


async def test_rows_of_the_folder_that_the_server_does_not_have_are_initial(folder: Path) -> None:
    trained = load(folder).table()
    async with system(folder) as served:
        await served.server.restore(0, epoch=1)
        initial = float(trained.initial(np.array([98, 99], np.uint64)).sum())
        await served.until(98, 99, score=initial)


async def test_a_broken_connection_goes_on_where_it_was(folder: Path) -> None:
    cut: list[Any] = []
    async with system(folder, cut=cut) as served:
        await served.push([3], 0.5)
        await served.until(3, 4, score=4.5 * DIMENSION)
        anew = value(metrics.FRESH_ANEW)
        cut[0].refuse()
        await until_metric(metrics.FRESH_CONNECTED, 0)
        await served.push([4], 0.25)
        assert await served.score(3, 4) == 4.5 * DIMENSION, "scores go on"
        cut[0].admit()
        await served.until(3, 4, score=0.75 * DIMENSION)
        assert value(metrics.FRESH_ANEW) == anew


async def test_a_newer_folder_keeps_what_its_own_rows_lack(folder: Path) -> None:
    async with system(folder, reload_seconds=0.05) as served:
        await served.push([3], 0.5)
        await served.until(3, 4, score=4.5 * DIMENSION)
        write_model(folder, JOB, offset=100.0)
        await served.until(3, 4, score=4.5 * DIMENSION + 100)
        await served.push([4], 0.25)
        await served.until(3, 4, score=0.75 * DIMENSION + 100)


async def test_each_table_is_followed(folder: Path) -> None:
    second = replace(JOB.table, name=f"{JOB.table.name}~1")
    features = (Feature("user"), Feature("item", table=1))
    write_model(folder, replace(JOB, tables=(JOB.table, second), features=features))
    item = int(in_table(np.array([5], np.uint64), np.array([1], np.uint64))[0])
    async with system(folder, further=(second,)) as served:
        rows = np.full((1, second.row_width), 0.5, np.float32)
        block = RowBlock(np.array([item], np.uint64), np.ones(1, np.int64), rows)
        await RowClient([served.server.server], second).push(Parcel(block))
        await served.push([3], 0.25)
        await served.until(3, item, score=0.75 * DIMENSION)
        await until_metric(metrics.FRESH_CONNECTED, 1)


async def test_rows_beyond_the_limit_end_the_following_by_name(folder: Path, told: asyncio.Queue[str]) -> None:
    async with system(folder, fresh_bytes=2**20) as served:
        await served.until(3, 4, score=7 * DIMENSION)
        await served.push(np.arange(1000, 41_000, dtype=np.uint64), 0.5)
        text = await asyncio.wait_for(told.get(), 60)
        assert "newer rows take" in text
        assert "ESD_MODEL_FRESH_BYTES=1048576 is the limit" in text
        assert await served.score(3, 4) == 7 * DIMENSION


async def test_a_table_of_another_model_is_refused_and_the_folder_served(
    folder: Path, told: asyncio.Queue[str]
) -> None:
    other = replace(JOB, tables=(replace(JOB.table, seed=JOB.table.seed + 1),))
    write_model(folder, other)
    async with system(folder) as served:
        assert "exists with seed" in await asyncio.wait_for(told.get(), 60)
        assert await served.score(3, 4) == 7 * DIMENSION


async def test_wrong_addresses_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="'here' is not host:port"):
        async with served_here(folder, fresh="127.0.0.1:1,here"):
            pass
