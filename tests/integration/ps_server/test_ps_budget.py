"""Waiting pulls and unfinished uploads share one budget of memory; a request beyond it is refused for the moment."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import numpy as np
import pytest

from esd.protos import ps_pb2
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.uploads import receive_upload
from esd.ps_server.service.waiting import BYTES_PER_PULLED_ID
from esd.services.domain.errors import Overloaded
from esd.services.runtime.byte_budget import ByteBudget
from tests.support.frames import row_push
from tests.support.ps_client import Client

ROWS = 10


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a server whose budget is one pull of 10 rows, with a table."""
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, max_waiting_bytes=ROWS * BYTES_PER_PULLED_ID)
    async with parameter_server(settings) as server, Client(server.address) as client:
        await client.create_table()
        yield client


async def until_waiting(client: Client, pulls: int) -> None:
    async with asyncio.timeout(60):
        while (await client.describe()).tables[0].waiting_pulls != pulls:  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.01)


async def test_pulls_beyond_the_budget_come_again(client: Client) -> None:
    waiting = asyncio.create_task(client.fetch(np.arange(ROWS), 1))
    await until_waiting(client, 1)
    with pytest.raises(Overloaded, match=r"waiting calls hold 640 bytes, and this one needs 64 more; .*WAITING_BYTES"):
        await client.fetch([50], 1)
    assert len((await client.fetch([50], 0))[0]) == 1  # what need not wait takes no room
    await client.send(row_push(np.arange(ROWS), 1, 0.5))
    assert len((await waiting)[0]) == ROWS
    waiting = asyncio.create_task(client.fetch([50], 1))
    await until_waiting(client, 1)
    await client.send(row_push([50], 1, 0.5))
    await waiting


async def test_one_call_alone_may_hold_more(client: Client) -> None:
    waiting = asyncio.create_task(client.fetch(np.arange(5 * ROWS), 1))
    await until_waiting(client, 1)
    await client.send(row_push(np.arange(5 * ROWS), 1, 0.5))
    assert len((await waiting)[0]) == 5 * ROWS
    assert await client.put_dense(bytes(10_000)) == 10_000


async def test_unfinished_uploads_count_until_they_are_over() -> None:
    budget = ByteBudget(640, "KNOB")
    refusals = []

    async def chunks() -> AsyncIterator[ps_pb2.PutDenseRequest]:
        for last in (False, True):
            yield ps_pb2.PutDenseRequest(data=bytes(160), last=last)
            with budget.share() as other:  # when the chunk before is taken
                try:
                    other.take(321)
                except Overloaded as error:
                    refusals.append(str(error))

    with budget.share() as share:
        await receive_upload(chunks(), lambda _: "a test", 1000, "LIMIT", share)
        assert share.held == 640
    assert refusals == [
        f"waiting calls hold {held} bytes, and this one needs 321 more; the limit is KNOB=640" for held in (320, 640)
    ]
    with budget.share() as after:
        after.take(640)


@pytest.mark.parametrize("size", [0, 1])
async def test_many_small_pieces_take_no_more_memory_than_is_counted(size: int) -> None:
    count = 100_000

    async def chunks() -> AsyncIterator[ps_pb2.PutDenseRequest]:
        for at in range(count):
            yield ps_pb2.PutDenseRequest(data=bytes([at % 256] * size), last=at == count - 1)

    tracemalloc.start()
    try:
        with ByteBudget(1 << 20, "KNOB").share() as share:
            _, data = await receive_upload(chunks(), lambda _: "a test", 1 << 20, "LIMIT", share)
            most = tracemalloc.get_traced_memory()[1]
            # A list of the pieces has 8 bytes for each, 800 kB, and the pieces. Other threads may allocate, too.
            assert most < share.held + 400_000
    finally:
        tracemalloc.stop()
    assert data == bytes(at % 256 for at in range(count * size))
