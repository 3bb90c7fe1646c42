"""Frames whose pulls are answered and whose pushes are not stored yet, when a connection or the store breaks."""

from __future__ import annotations

from contextlib import AsyncExitStack

import numpy as np

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.memory import MemoryStore
from esd.services.clients.frame import Frame
from esd.services.domain.errors import Unavailable
from esd.services.domain.parcels import NO_ROWS, Parcel, Pulls
from esd.services.domain.rows import GradientBlock
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.frames import SPEC
from tests.support.server_client import ServerClient

ROW, PULLED = np.array([5], np.uint64), np.array([8], np.uint64)
OF_ITS_BIRTH = np.zeros(1, np.int64)


def gradient(worker: int, version: int) -> GradientBlock:
    """A gradient of one worker alone, which makes this version of the row."""
    targets, rates, values = np.array([version]), np.array([0.1], np.float32), np.full((1, SPEC.dimension), version)
    contributors, steps = np.array([1 << worker], np.uint64), np.array([version], np.uint32)
    return GradientBlock(ROW, targets, contributors, steps, rates, values.astype(np.float32), worker)


def undisturbed() -> np.ndarray:
    """The values of the row after both gradients, in order."""
    tables = Tables(MemoryStore(), Shard())
    tables.create(SPEC)
    for worker in (0, 1):
        tables.get(SPEC.name).push_gradients(gradient(worker, worker + 1))
    return tables.get(SPEC.name).read(ROW).rows[:, : SPEC.dimension]


async def begin(ahead: ServerClient) -> Frame:
    """Sends a frame that pulls a row, and pushes a gradient before its turn; returns when the pull is answered."""
    pulled = np.zeros((1, SPEC.row_width), np.float32)
    pulls = Pulls(PULLED, OF_ITS_BIRTH, np.zeros(1, np.int64))
    (frame,) = ahead.exchange(Parcel(NO_ROWS, gradient(1, 2), pulls), pulled)
    await frame.pulled
    assert pulled.any()
    assert not frame.stored.done()
    return frame


async def finish(frame: Frame, behind: ServerClient) -> None:
    """Sends the gradient whose turn it is, and checks that the row gets both, once each."""
    await behind.push(Parcel(NO_ROWS, gradient(0, 1)))
    assert (await frame.stored).new == 1
    versions, values = await behind.look_up(ROW)
    assert versions.tolist() == [2]
    np.testing.assert_array_equal(values, undisturbed())


async def test_a_push_is_sent_again_alone_when_the_connection_breaks_after_its_pull(start, any_store):
    server = await start(**any_store)
    await server.create_table()
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(CuttableProxy.running(server.address))
        ahead = await stack.enter_async_context(
            ServerClient(proxy.address, SPEC, timeout=60, patience={Unavailable: 60})
        )
        behind = await stack.enter_async_context(ServerClient(server.address, SPEC, timeout=60))
        frame = await begin(ahead)
        answered = frame.pull_bytes
        proxy.cut()
        await finish(frame, behind)
        assert frame.pull_bytes == answered  # the rows came once


async def test_a_push_outlives_a_redis_that_is_killed_after_its_pull(start, own_redis):
    server = await start(store=own_redis.url)
    await server.create_table()
    async with AsyncExitStack() as stack:
        ahead, behind = [
            await stack.enter_async_context(ServerClient(server.address, SPEC, timeout=60, patience={Unavailable: 60}))
            for _ in range(2)
        ]
        frame = await begin(ahead)
        own_redis.kill()
        own_redis.start()
        await finish(frame, behind)
