"""Streams that are cut anywhere: every frame is sent again, and the table ends as if none had been cut."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.errors import Unavailable
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import GradientBlock, RowBlock
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.frames import SPEC
from tests.support.server_client import ServerClient

CUTS = 200
OWNED = 12  # rows that each worker trains alone, and pulls of the other
SPLIT = np.arange(100, 106, dtype=np.uint64)  # rows that both train


def owned(worker: int) -> np.ndarray:
    return np.arange(OWNED * worker, OWNED * (worker + 1), dtype=np.uint64)


def push_of(worker: int, iteration: int) -> Parcel:
    """The push of a worker in an iteration: all rows and gradients that it may push only once."""
    rng = np.random.default_rng([worker, iteration])
    rows = rng.standard_normal((OWNED, SPEC.row_width)).astype(np.float32)
    gradients = rng.standard_normal((len(SPLIT), SPEC.dimension)).astype(np.float32)
    numbers, steps = np.full(len(SPLIT), iteration), np.full(len(SPLIT), iteration, np.uint32)
    rates = np.full(len(SPLIT), 0.1, np.float32)
    return Parcel(
        RowBlock(owned(worker), np.full(OWNED, iteration), rows),
        GradientBlock(SPLIT, numbers, np.full(len(SPLIT), 0b11, np.uint64), steps, rates, gradients, worker),
    )


class Worker:
    """Trains behind a proxy that cuts its connection after some hundred bytes, again and again."""

    def __init__(self, slot: int, proxy: CuttableProxy, rng: np.random.Generator, together: asyncio.Barrier) -> None:
        self._slot = slot
        self._together = together
        self._proxy = proxy
        self._rng = rng
        self._client = ServerClient(proxy.address, SPEC, timeout=60, patience={Unavailable: 60})
        self.pulled: list[np.ndarray] = []

    async def train(self, iterations: range) -> None:
        theirs = np.concatenate([owned(1 - self._slot), SPLIT])
        for iteration in iterations:
            if self._proxy.cuts < CUTS // 2:
                self._proxy.cut_after(int(self._rng.integers(1, 6000)))
            await self._client.push(push_of(self._slot, iteration))
            rows = np.empty((len(theirs), SPEC.row_width), np.float32)
            await self._client.pull(theirs, np.full(len(theirs), iteration), rows, np.arange(len(theirs)))
            self.pulled.append(rows)
            await self._together.wait()  # as the all-reduce keeps workers together

    async def close(self) -> None:
        await self._client.close()


async def test_streams_that_are_cut_at_random_bytes_end_with_the_same_table(client: Any) -> None:
    rng = np.random.default_rng(4)
    async with CuttableProxy.running(client.address) as one, CuttableProxy.running(client.address) as other:
        together = asyncio.Barrier(2)
        workers = [Worker(slot, proxy, rng, together) for slot, proxy in enumerate((one, other))]
        iteration = 0
        while min(one.cuts, other.cuts) < CUTS // 2:
            async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                for worker in workers:
                    tasks.create_task(worker.train(range(iteration + 1, iteration + 11)))
            iteration += 10
        for worker in workers:
            await worker.close()
    tables = Tables(MemoryStore(), Shard())
    tables.create(SPEC)
    undisturbed = tables.get(SPEC.name)
    for number in range(1, iteration + 1):
        for slot in (0, 1):
            push = push_of(slot, number)
            undisturbed.push_rows(push.rows)
            undisturbed.push_gradients(push.gradients)
        for slot, worker in enumerate(workers):
            expected = undisturbed.read(np.concatenate([owned(1 - slot), SPLIT])).rows
            np.testing.assert_array_equal(worker.pulled[number - 1], expected)
    ids, versions, rows = await client.everything()
    expected = undisturbed.read(ids)
    np.testing.assert_array_equal(versions, expected.versions)
    np.testing.assert_array_equal(rows, expected.rows)
    table = (await client.describe()).tables[0]
    assert (table.rows, table.pending_gradients, table.waiting_pulls) == (2 * OWNED + len(SPLIT), 0, 0)
