"""The client of the parameter server: its requests, its results, and answers that it rejects."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from esd.services.clients.checkpoints import SavedCut, StoredState
from esd.services.clients.rows import PushAnswer
from esd.services.clients.traffic import Traffic
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, NotFound, StaleEpoch
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.worker_set import WorkerSet
from tests.support.ps_client import SPEC, Client
from tests.support.server_client import ServerClient

IDS = np.arange(40, dtype=np.uint64)
EVERY_ROW = np.arange(len(IDS))
CHECKPOINT = 5
ALONE = WorkerSet.of([0])


def trained(version: int, value: float) -> RowBlock:
    """All rows, at one version and with one value."""
    rows = np.full((len(IDS), SPEC.row_width), value, np.float32)
    return RowBlock(IDS, np.full(len(IDS), version), rows)


def push_of(rows: RowBlock, gradients: int = 0) -> Parcel:
    """A push of rows, and of the gradients of worker 1 of 2 for some rows that were never trained."""
    ids = np.arange(1000, 1000 + gradients, dtype=np.uint64)
    ones, both = np.ones(gradients, np.int64), np.full(gradients, 0b11, np.uint64)
    values = np.ones((gradients, SPEC.dimension), np.float32)
    steps, rates = np.ones(gradients, np.uint32), np.full(gradients, 0.1, np.float32)
    return Parcel(rows, GradientBlock(ids, ones, both, steps, rates, values, worker=0))


async def pulled(client: ServerClient, version: int, epoch: int = 0) -> np.ndarray:
    rows = np.empty((len(IDS), SPEC.row_width), np.float32)
    await client.pull(IDS, np.full(len(IDS), version), rows, EVERY_ROW, epoch=epoch)
    return rows


async def test_rows_go_and_come_back_at_the_positions_that_were_asked_for(client: Client) -> None:
    block = RowBlock(IDS, np.ones(len(IDS), np.int64), np.repeat(IDS[:, None], SPEC.row_width, 1).astype(np.float32))
    answer = await client.push(push_of(block, gradients=3))
    assert (answer.stored, answer.already_known) == (43, 0)
    again = await client.push(push_of(block, gradients=3))
    assert again == PushAnswer(0, 43, answer.bytes_sent)
    rows = np.zeros((2 * len(IDS), SPEC.row_width), np.float32)
    received = await client.pull(IDS, block.versions, rows, 2 * EVERY_ROW[::-1])
    np.testing.assert_array_equal(rows[2 * EVERY_ROW[::-1]], block.rows)
    assert not rows[1::2].any()
    assert received > block.rows.nbytes
    scanned = [stored async for stored in client.scan()]
    assert sum(len(stored) for stored in scanned) == len(IDS)


async def test_a_row_is_forgotten_below_a_life(client: Client) -> None:
    await client.push(push_of(trained(1, 1.0)))
    assert await client.forget(IDS[:7], 2**30) == 7
    assert await client.forget(IDS[:7], 2**30) == 0


async def test_a_checkpoint_is_made_and_gone_back_to(client: Client) -> None:
    assert await client.restore(0, epoch=1) == 0
    await client.push(push_of(trained(1, 1.0)), epoch=1)
    with pytest.raises(FailedPrecondition, match="cut"):
        await client.save(CHECKPOINT, epoch=1)
    await client.cut(CHECKPOINT, 0, ALONE, epoch=1)
    assert await client.save(CHECKPOINT, epoch=1) == SavedCut(len(IDS), len(IDS) * SPEC.row_bytes, len(IDS))
    assert await client.put_part(CHECKPOINT, "dense", b"parameters", epoch=1) == 10
    assert await client.get_part(CHECKPOINT, "dense") == b"parameters"
    with pytest.raises(NotFound, match="no part 'engine'"):
        await client.get_part(CHECKPOINT, "engine")
    await client.commit(CHECKPOINT, b"manifest", 1, epoch=1)
    assert await client.get_checkpoint() == StoredState(
        epoch=1,
        manifest=b"manifest",
        rows=len(IDS),
        durable=False,
        checkpoint=CHECKPOINT,
        checkpoint_rows=len(IDS),
        checkpoint_trainings=len(IDS),
    )

    await client.push(push_of(trained(2, 2.0)), epoch=1)
    assert await client.restore(CHECKPOINT, epoch=2) == len(IDS)
    np.testing.assert_array_equal(await pulled(client, 1, epoch=2), trained(1, 1.0).rows)
    for late in (
        pulled(client, 1, epoch=1),
        client.push(push_of(trained(2, 2.0)), epoch=1),
        client.forget(IDS, 2**30, epoch=1),
        client.cut(CHECKPOINT + 1, 0, ALONE, epoch=1),
        client.save(CHECKPOINT, epoch=1),
        client.commit(CHECKPOINT, b"", 1, epoch=1),
        client.put_part(CHECKPOINT + 1, "dense", b"other", epoch=1),
        client.put_dense(b"other", epoch=1),
        client.append_samples(LogEntry(0, 1, b"x"), epoch=1),
        client.trim_samples(None, epoch=1),
    ):
        with pytest.raises(StaleEpoch):
            await late
    assert await client.forget(IDS[:7], 2**30, epoch=2) == 7


async def test_a_finished_table_is_read_and_not_written(client: Client) -> None:
    await client.push(push_of(trained(1, 1.0)))
    await client.cut(CHECKPOINT, 0, ALONE, epoch=0)
    await client.commit(CHECKPOINT, b"manifest", 1, epoch=0, finished=True)
    assert (await client.get_checkpoint()).finished
    for write in (
        client.push(push_of(trained(2, 2.0))),
        client.forget(IDS, 2**30),
        client.put_dense(b"other"),
        client.put_part(CHECKPOINT + 1, "dense", b"other", epoch=0),
        client.cut(CHECKPOINT + 1, 0, ALONE, epoch=0),
        client.create_table(to_train=True),
    ):
        with pytest.raises(FailedPrecondition, match="is finished: its job has ended"):
            await write
    np.testing.assert_array_equal(await pulled(client, 1), trained(1, 1.0).rows)
    assert not await client.create_table()
    await client.restore(CHECKPOINT, epoch=1)
    assert not (await client.get_checkpoint()).finished
    await client.push(push_of(trained(2, 2.0)), epoch=1)


async def test_the_end_of_a_job_without_checkpoints_finishes_its_table(client: Client) -> None:
    await client.push(push_of(trained(1, 1.0)))
    await client.cut(CHECKPOINT, 0, ALONE, epoch=0, last=True)
    stored = await client.get_checkpoint()
    assert (stored.finished, stored.checkpoint) == (True, 0)
    with pytest.raises(FailedPrecondition, match="is finished"):
        await client.push(push_of(trained(2, 2.0)))


async def test_the_sample_log_is_appended_read_and_trimmed(client: Client) -> None:
    first, second, end = LogEntry(10, 3, b"abc"), LogEntry(13, 2, b"de"), LogEntry(15, 0)
    await client.begin_epoch(1, takes_over=True)
    assert await client.read_samples(epoch=1) == []
    for entry in (first, second, end, end):
        await client.append_samples(entry, epoch=1)
    await client.begin_epoch(2, takes_over=True)
    with pytest.raises(StaleEpoch, match="epoch 1 is not the epoch of table"):
        await client.read_samples(epoch=1)
    assert await client.read_samples(epoch=2) == [first, second, end]
    await client.trim_samples(13, epoch=2)
    assert await client.read_samples(epoch=2) == [second, end]
    await client.trim_samples(None, epoch=2)
    assert await client.read_samples(epoch=2) == []


@dataclass
class RecordedTraffic(Traffic):
    """Lets everything pass and remembers it."""

    chunk_bytes: int = 3 * (SPEC.row_bytes + 32)
    ups: list[int] = field(default_factory=list)
    downs: list[int] = field(default_factory=list)
    pushed_bytes: list[int] = field(default_factory=list)
    under_way: int = 0

    def up(self, size: int) -> float:
        self.ups.append(size)
        return 0.0

    def down(self, size: int) -> float:
        self.downs.append(size)
        return 0.0

    def push_begins(self) -> None:
        self.under_way += 1

    def push_ends(self, size: int) -> None:
        self.under_way -= 1
        self.pushed_bytes.append(size)


async def test_everything_long_passes_the_traffic_in_chunks_of_its_size(client: Client) -> None:
    traffic = RecordedTraffic()
    async with ServerClient(client.address, SPEC, traffic=traffic) as shaped:
        answer = await shaped.push(push_of(trained(1, 1.0)))
        assert sorted(traffic.ups) == sorted(traffic.pushed_bytes)
        assert (len(traffic.ups), sum(traffic.ups)) == (14, answer.bytes_sent)
        assert max(traffic.ups) <= traffic.chunk_bytes
        traffic.ups.clear()
        traffic.downs.clear()
        moved = await shaped.pull(
            IDS, np.ones(len(IDS), np.int64), np.empty((40, SPEC.row_width), np.float32), EVERY_ROW
        )
        assert (len(traffic.ups), len(traffic.downs)) == (14, 14)
        assert sum(traffic.ups) + sum(traffic.downs) == moved
        assert max(traffic.downs) <= traffic.chunk_bytes

        traffic.ups.clear()
        traffic.downs.clear()
        data = bytes(10 * traffic.chunk_bytes + 1)
        await shaped.put_dense(data)
        await shaped.put_part(1, "dense", data, epoch=0)
        assert traffic.ups == 2 * ([traffic.chunk_bytes] * 10 + [1])
        assert await shaped.get_part(1, "dense") == await shaped.get_dense() == data
        assert sum(traffic.downs) == 2 * len(data)
        assert (len(traffic.pushed_bytes), traffic.under_way) == (14, 0)
