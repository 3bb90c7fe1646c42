"""Bad frames are refused one by one with the value named, and the frames around them never notice."""

from __future__ import annotations

import numpy as np
import pytest

from esd.protos import ps_pb2
from esd.services.domain.ids import shard_of
from tests.support.exchange import RawExchange, exchange
from tests.support.frames import SPEC, frame, gradient_push, row_push

EPOCH = 3
MINE, FOREIGN = (np.flatnonzero(shard_of(np.arange(64, dtype=np.uint64), 2) == shard) for shard in (0, 1))
A, B = MINE[:2]
GOOD = row_push([A], 1, 0.5)


def rows(**fields):
    """A frame with other bytes in some fields of its rows."""
    bad = ps_pb2.ExchangeRequest()
    bad.CopyFrom(GOOD)
    for name, value in fields.items():
        setattr(bad.rows, name, value)
    return frame(0, bad, epoch=EPOCH)


def gradients(*push, **fields):
    return frame(0, gradient_push(*push, **fields), epoch=EPOCH)


BAD = {
    "NaN in a row": (frame(0, row_push([A, B], 1, np.nan), epoch=EPOCH), f"row {A} holds NaN or infinity"),
    "infinite gradient": (gradients(0, [A], 1, 0b11, np.inf), f"gradients of table 't' are not finite: row {A}"),
    "row named twice": (frame(0, row_push([A, B, A], 1, 0.5), epoch=EPOCH), f"row {A} is named twice"),
    "gradient named twice": (gradients(0, [A, A], 1, 0b11, 1.0), f"row {A} is named twice"),
    "pull named twice": (frame(0, pull=([B, A, B], 0), epoch=EPOCH), f"row {B} is named twice"),
    "foreign row": (frame(0, row_push([FOREIGN[0]], 1, 0.5), epoch=EPOCH), f"row {FOREIGN[0]} belongs to shard 1"),
    "foreign gradient": (gradients(0, [FOREIGN[0]], 1, 0b11, 1.0), f"row {FOREIGN[0]} belongs to shard 1"),
    "foreign pull": (frame(0, pull=([A, FOREIGN[1]], 0), epoch=EPOCH), f"row {FOREIGN[1]} belongs to shard 1"),
    "version 0": (frame(0, row_push([A], 0, 0.5), epoch=EPOCH), f"version of row {A} is 0"),
    "version too high": (frame(0, pull=([A], 2**53), epoch=EPOCH), f"version of row {A} is {2**53}"),
    "skipped version": (
        frame(0, gradient_push(0, [A], 2**30 + 7, 0b11, 1.0), epoch=EPOCH, wait_ms=0),
        f"makes version {2**30 + 7} of row {A}",
    ),
    "no contributor": (gradients(2, [A], 1, 0b11, 1.0), "worker 2 is not among the contributors 0x3"),
    "worker slot": (gradients(128, [A], 1, 0b11, 1.0), "worker is 128, slots are 0..127"),
    "optimizer step": (gradients(0, [A], 1, 0b11, 1.0, step=0), "optimizer steps count from 1"),
    "half an id": (rows(ids=b"1234567"), "rows.ids has 7 bytes"),
    "no versions": (rows(versions=b""), "rows.versions has 0 bytes"),
    "narrow rows": (rows(rows=bytes(4 * SPEC.dimension)), "rows.rows has 64 bytes, float32 [1, 48] needs 192"),
    "short pull": (
        ps_pb2.ExchangeRequest(table="t", epoch=EPOCH, pulls=ps_pb2.PullBlock(ids=bytes(16), versions=bytes(8))),
        "pulls.versions has 8 bytes",
    ),
    "old epoch": (frame(0, GOOD, epoch=2), "epoch 2 is not the epoch of table 't', which is in epoch 3"),
    "old epoch of a pull": (frame(0, pull=([A], 0), epoch=2), "epoch 2 is not the epoch of table 't'"),
    "no table": (frame(0, GOOD, epoch=EPOCH, table="u"), "there is no table 'u'"),
    "nothing": (frame(0, epoch=EPOCH), "neither stores nor pulls anything"),
    "too long": (rows(rows=bytes(2**20 + 5000)), "and at most 1052672 are allowed"),
}


@pytest.fixture
async def client(start, any_store):
    client = await start(shards=2, **any_store)
    await client.create_table()
    await client.restore(0, epoch=EPOCH)
    return client


async def good(stream: RawExchange, sequence: int) -> None:
    """Stores and pulls a row whose version is the frame's number, which a disturbed stream could not do."""
    row = row_push([B], sequence, float(sequence))
    await stream.write(frame(sequence, row, pull=([B], sequence), epoch=EPOCH))


async def check(stream: RawExchange, sequence: int) -> None:
    assert (await stream.rows(sequence, 1))[0, 0] == sequence


async def test_bad_frames_never_disturb_the_good_ones_around_them(client):
    async with exchange(client.channel) as stream:
        await good(stream, 1)
        for sequence, (bad, _) in enumerate(BAD.values(), 1):
            bad.sequence = 2 * sequence
            await stream.write(bad)
            await good(stream, 2 * sequence + 1)
        await check(stream, 1)
        for sequence, (name, (_, text)) in enumerate(BAD.items(), 1):
            (answer,) = await stream.answer(2 * sequence)
            assert (text in answer.refusal.message, answer.stored, answer.done) == (True, False, True), (name, answer)
            await check(stream, 2 * sequence + 1)
        await stream.end()
    table = (await client.describe()).tables[0]
    assert (table.rows, table.pending_gradients, table.waiting_pulls) == (1, 0, 0)


async def test_frames_out_of_order_are_refused(client):
    async with exchange(client.channel) as stream:
        await stream.write(frame(7, GOOD, epoch=EPOCH), frame(3, GOOD, epoch=EPOCH), frame(0, GOOD, epoch=EPOCH))
        await stream.answer(7)
        for sequence in (3, 0):
            (answer,) = await stream.answer(sequence)
            assert f"sequence is {sequence}, it must be above 7" in answer.refusal.message
        await good(stream, 8)
        await check(stream, 8)


async def test_bytes_that_are_no_message_are_refused(client):
    rng = np.random.default_rng(5)
    async with exchange(client.channel) as stream:
        cut = frame(2, GOOD, epoch=EPOCH).SerializeToString()[:-1]
        await good(stream, 1)
        await stream.write(cut)
        await good(stream, 3)
        (answer,) = await stream.answer(2)
        assert f"these {len(cut)} bytes are no ExchangeRequest" in answer.refusal.message
        refused = 0
        for _ in range(40):  # each is refused, under a sequence that may be any
            noise = rng.bytes(int(rng.integers(1, 200)))
            if noise[0] == 0x08:
                continue
            await stream.write(noise)
            (answer,) = await stream.answer(0)
            refused += answer.HasField("refusal")
        assert refused > 30
        await check(stream, 1)
        await check(stream, 3)
        await good(stream, 4)
        await check(stream, 4)
