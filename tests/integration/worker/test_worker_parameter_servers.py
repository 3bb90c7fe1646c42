"""The worker's client of the parameter servers, against real ones."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from esd.services.domain.jobs import JobSpec
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerSpec
from esd.worker.service.link import Link
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.settings import WorkerSettings
from testbed.free_port import free_port
from tests.integration.worker.small import small_job
from tests.support.reference import initial_rows

IDS = np.random.default_rng(1).integers(0, 2**64, 5000, np.uint64)
NEVER_TRAINED = np.zeros(len(IDS), np.int64)
NO_ROWS = RowBlock(IDS[:0], NEVER_TRAINED[:0], np.empty((0, 5), np.float32))
NO_STEPS, NO_RATES = np.empty(0, np.uint32), np.empty(0, np.float32)
NO_GRADIENTS = GradientBlock(
    IDS[:0], NEVER_TRAINED[:0], IDS[:0], NO_STEPS, NO_RATES, np.empty((0, 5), np.float32), worker=0
)
SETTINGS = WorkerSettings(name="a", dispatcher="127.0.0.1:1", link=1e9, cache_rows=8)


def connect(job: JobSpec, worker: int = 0, link: Link | None = None) -> ParameterServers:
    return ParameterServers(job, worker, link or Link(1e9, shape=False), SETTINGS)


@pytest.fixture
async def job(start_servers):
    return small_job(await start_servers(2), 2, OptimizerSpec(learning_rate=0.5))


@pytest.fixture
async def servers(job):
    servers = connect(job)
    await servers.create_tables()
    yield servers
    await servers.aclose()


async def test_rows_come_in_the_order_they_were_asked_for(job, servers):
    rows = np.empty((len(IDS), 5), np.float32)
    size = await servers.tables[0].pull(IDS, NEVER_TRAINED, rows)
    np.testing.assert_array_equal(rows, initial_rows(job.table, IDS))
    assert len(IDS) * 17 <= size < len(IDS) * 18  # id and version there, and back a mark: they were never trained


async def test_pushed_rows_come_back(servers):
    rows = np.random.default_rng(2).normal(size=(len(IDS), 5)).astype(np.float32)
    await servers.tables[0].push(Parcel(RowBlock(IDS[:3000], NEVER_TRAINED[:3000] + 1, rows[:3000]), NO_GRADIENTS))
    await servers.tables[0].push(Parcel(RowBlock(IDS, NEVER_TRAINED + 1, rows), NO_GRADIENTS))  # a repetition, in part
    pulled = np.empty_like(rows)
    await servers.tables[0].pull(IDS, NEVER_TRAINED + 1, pulled)
    np.testing.assert_array_equal(pulled, rows)


async def test_a_push_in_many_pieces_arrives_whole(job):
    servers = connect(job, link=Link(400_000, shape=False))  # a slow link takes small pieces
    await servers.create_tables()
    rows = np.random.default_rng(2).normal(size=(len(IDS), 5)).astype(np.float32)
    trained, split = slice(0, 2400), slice(2400, len(IDS))
    count = len(IDS[split])
    gradients = GradientBlock(
        IDS[split],
        targets=np.ones(count, np.int64),
        contributors=np.ones(count, np.uint64),
        steps=np.ones(count, np.uint32),
        rates=np.full(count, 0.5, np.float32),
        gradients=rows[split],
        worker=0,
    )
    await servers.tables[0].push(Parcel(RowBlock(IDS[trained], NEVER_TRAINED[trained] + 1, rows[trained]), gradients))
    pulled = np.empty_like(rows)
    await servers.tables[0].pull(IDS, NEVER_TRAINED + 1, pulled)
    np.testing.assert_array_equal(pulled[trained], rows[trained])
    expected = initial_rows(job.table, IDS[split]) - 0.5 * rows[split]
    np.testing.assert_allclose(pulled[split], expected, rtol=1e-5, atol=1e-6)
    await servers.aclose()


async def test_a_pull_waits_for_the_gradients_of_all_contributors(job, servers):
    ids, gradients = IDS[:100], np.ones((100, 5), np.float32)
    block = GradientBlock(
        ids,
        targets=np.ones(100, np.int64),
        contributors=np.full(100, 0b11, np.uint64),
        steps=np.ones(100, np.uint32),
        rates=np.full(100, 0.5, np.float32),
        gradients=gradients,
        worker=0,
    )
    rows = np.empty((100, 5), np.float32)
    pulling = asyncio.create_task(servers.tables[0].pull(ids, np.ones(100, np.int64), rows))
    await servers.tables[0].push(Parcel(NO_ROWS, block))
    assert not pulling.done()
    other = connect(job, worker=1)
    await other.tables[0].push(Parcel(NO_ROWS, replace(block, worker=1)))
    await other.aclose()
    await pulling
    np.testing.assert_allclose(rows, initial_rows(job.table, ids) - 0.5 * 2 * gradients, rtol=1e-6)


async def test_traffic_is_never_faster_than_the_link_in_either_direction(job, servers):
    """On a busy machine it may be slower."""
    link = Link(400_000, shape=True)
    slow = connect(job, link=link)
    rows = np.random.default_rng(2).normal(size=(len(IDS), 5)).astype(np.float32)
    started = time.perf_counter()
    pushed = await slow.tables[0].push(Parcel(RowBlock(IDS, NEVER_TRAINED + 1, rows), NO_GRADIENTS))
    assert (time.perf_counter() - started) * 400_000 >= 0.8 * pushed.bytes_sent

    started = time.perf_counter()
    await slow.tables[0].pull(IDS, NEVER_TRAINED + 1, rows)
    assert (time.perf_counter() - started) * 400_000 >= 0.9 * rows.nbytes
    assert 0 < link.uplink.take() < 1.3 * 400_000
    await slow.aclose()


async def test_a_server_that_restarts_is_waited_for(start_process):
    address = f"127.0.0.1:{free_port()}"
    first = await start_process("esd.ps_server", ESD_PS_LISTEN=address)
    job = small_job([address], 1, OptimizerSpec())
    servers = connect(job)
    await servers.create_tables()
    first.process.terminate()
    await first.end()
    again = asyncio.create_task(servers.create_tables())
    await start_process("esd.ps_server", ESD_PS_LISTEN=address)
    await again
    rows = np.empty((10, 5), np.float32)
    await servers.tables[0].pull(IDS[:10], NEVER_TRAINED[:10], rows)
    np.testing.assert_array_equal(rows, initial_rows(job.table, IDS[:10]))
    await servers.aclose()
