"""A table in three shards, through the clients that a worker and a reader of a model use: as one table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.rows import RowClient
from esd.services.clients.tables import TableClient
from esd.services.domain.errors import NotFound, StaleVersion
from esd.services.domain.ids import shard_of
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import RowBlock
from tests.support.frames import SPEC

SHARDS = 3
IDS = np.random.default_rng(5).permutation(np.arange(1000, dtype=np.uint64))
ROWS = np.random.default_rng(6).random((len(IDS), SPEC.row_width), np.float32)
ONE = np.ones(len(IDS), np.int64)


@pytest.fixture
async def servers() -> AsyncIterator[list[ParameterServerConnection]]:
    async with AsyncExitStack() as stack:
        connections = []
        for shard in range(SHARDS):
            settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, shard=shard, shards=SHARDS)
            server = await stack.enter_async_context(parameter_server(settings))
            connection = ParameterServerConnection(server.address, listed=(shard, SHARDS))
            connections.append(await stack.enter_async_context(connection))
        yield connections


async def rows_of(server: ParameterServerConnection) -> int:
    return (await server.describe()).tables[0].rows


async def test_each_row_goes_to_its_shard_and_comes_back_in_the_order_of_its_id(servers):
    worker, reader = RowClient(servers, SPEC), TableClient(servers, SPEC)
    await worker.create(b"")
    pushed = await worker.push(Parcel(RowBlock(IDS, ONE, ROWS)))
    assert (pushed.stored, pushed.already_known) == (len(IDS), 0)
    owners = np.bincount(shard_of(IDS, SHARDS), minlength=SHARDS)
    assert owners.min() > 0
    assert [await rows_of(server) for server in servers] == owners.tolist()

    pulled = np.zeros_like(ROWS)
    assert await worker.pull(IDS, ONE, pulled) > ROWS.nbytes
    np.testing.assert_array_equal(pulled, ROWS)
    places = np.arange(len(IDS))[::-1].copy()
    await worker.pull(IDS, ONE, pulled, places)
    np.testing.assert_array_equal(pulled[places], ROWS)

    versions, values = await reader.look_up(np.append(IDS, np.uint64(7777)))
    assert versions.tolist() == [1] * len(IDS) + [0]
    np.testing.assert_array_equal(values[:-1], ROWS[:, : SPEC.dimension])

    blocks = [block async for block in reader.scan()]
    scanned = {int(i): row.tolist() for block in blocks for i, row in zip(block.ids, block.rows, strict=True)}
    assert scanned == {int(i): row.tolist() for i, row in zip(IDS, ROWS, strict=True)}


async def test_a_block_may_lie_in_a_larger_table(servers):
    """As rows do that leave a worker's cache, in an order that has nothing to do with their slots."""
    worker = RowClient(servers, SPEC)
    await worker.create(b"")
    cache = np.random.default_rng(7).random((3 * len(IDS), SPEC.row_width), np.float32)
    slots = np.random.default_rng(8).permutation(len(cache))[: len(IDS)].astype(np.uint32)
    await worker.push(Parcel(RowBlock(IDS, ONE, cache, slots)))
    pulled = np.zeros_like(ROWS)
    await worker.pull(IDS, ONE, pulled)
    np.testing.assert_array_equal(pulled, cache[slots])


async def test_rows_are_forgotten_at_every_shard(servers):
    worker = RowClient(servers, SPEC)
    await worker.create(b"")
    await worker.push(Parcel(RowBlock(IDS, ONE, ROWS)))
    assert await worker.forget(IDS[:400], 2**30) == 400
    assert sum([await rows_of(server) for server in servers]) == 600
    assert await worker.forget(IDS[:400], 2**30) == 0


async def test_an_error_of_one_shard_is_raised(servers):
    worker, reader = RowClient(servers, SPEC), TableClient(servers, SPEC)
    for server in servers[:2]:
        await server.create_table(SPEC)
    with pytest.raises(NotFound):
        await reader.look_up(IDS)
    await servers[2].create_table(SPEC)
    await worker.push(Parcel(RowBlock(IDS, 2 * ONE, ROWS)))
    with pytest.raises(StaleVersion):
        await worker.pull(IDS, ONE, np.zeros_like(ROWS))
