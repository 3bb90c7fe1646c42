"""Wrong requests get their exact code and leave nothing behind; the rest of the interface."""

import asyncio
import dataclasses
import struct

import numpy as np
import pytest
from grpc import StatusCode

from esd.protos import ps_pb2
from esd.services.domain.ids import shard_of
from tests.support.frames import SPEC, gradient_push, row_push
from tests.support.ps_client import refused
from tests.support.reference import initial_rows
from tests.support.server_client import ServerClient

INVALID = StatusCode.INVALID_ARGUMENT
FAILED = StatusCode.FAILED_PRECONDITION

GOOD_ROWS = row_push([1], 1, 1.0)
GOOD_GRADIENTS = gradient_push(0, [1], 1, 0b11, 1.0)


def altered(good, **fields):
    """A copy of a good push with other bytes in some fields."""
    push = ps_pb2.ExchangeRequest()
    push.CopyFrom(good)
    body = push.rows if push.HasField("rows") else push.gradients
    for name, value in fields.items():
        setattr(body, name, value)
    return push


@pytest.mark.parametrize(
    ("push", "code", "text"),
    [
        (row_push([1, 2, 1], 1, 1.0), INVALID, "row 1 is named twice"),
        (row_push([1, 2], 1, [np.nan] * SPEC.row_width), INVALID, "row 1 holds NaN"),
        (row_push([1, 2], 1, [np.inf] * SPEC.row_width), INVALID, "row 1 holds NaN or infinity"),
        (row_push([1], 0, 1.0), INVALID, "version of row 1 is 0"),
        (row_push([1], -1, 1.0), INVALID, "version of row 1 is -1"),
        (altered(GOOD_ROWS, ids=b"1234567"), INVALID, "rows.ids has 7 bytes"),
        (altered(GOOD_ROWS, versions=b""), INVALID, "rows.versions has 0 bytes"),
        (altered(GOOD_ROWS, rows=bytes(4 * SPEC.dimension)), INVALID, r"rows.rows has 64 bytes, float32 \[1, 48\]"),
        (gradient_push(0, [4, 4], 1, 0b11, 1.0), INVALID, "row 4 is named twice"),
        (gradient_push(2, [4], 1, 0b11, 1.0), INVALID, "worker 2 is not among the contributors 0x3"),
        (gradient_push(128, [4], 1, 0b11, 1.0), INVALID, r"slots are 0\.\.127"),
        (gradient_push(0, [4], 1, 0b11, -np.inf), INVALID, "not finite"),
        (gradient_push(0, [4], 1, 0b11, 1.0, step=0), INVALID, "steps count from 1"),
        (altered(GOOD_GRADIENTS, gradients=bytes(4 * SPEC.row_width)), INVALID, "gradients.gradients has 192 bytes"),
        (altered(GOOD_GRADIENTS, contributors=b"\3"), INVALID, "gradients.contributors has 1 bytes"),
        (gradient_push(0, [4], 2, 0b11, 1.0), FAILED, "version 2 of row 4, which is only at 0"),
        (ps_pb2.ExchangeRequest(table="t"), INVALID, "neither stores nor pulls anything"),
        (ps_pb2.ExchangeRequest(table="u", rows=GOOD_ROWS.rows), StatusCode.NOT_FOUND, "no table 'u'"),
    ],
)
async def test_a_wrong_push_is_refused(client, push, code, text):
    with refused(code, text):
        await client.send(push)
    table = (await client.describe()).tables[0]
    assert (table.rows, table.pending_gradients) == (0, 0)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (gradient_push(1, [1], 1, 0b111, 1.0), "contributors 0x7, step 1.* disagrees .*contributors 0x3, step 1"),
        (gradient_push(1, [1], 1, 0b11, 1.0, step=2), "step 2.* disagrees .*step 1"),
        (row_push([1], 1, 1.0), "partial gradients for its version 1 are pending"),
    ],
)
async def test_a_push_that_disagrees_with_pending_gradients_is_refused(client, other, text):
    await client.send(GOOD_GRADIENTS)
    with refused(FAILED, text):
        await client.send(other)
    assert (await client.describe()).tables[0].pending_gradients == 1


async def test_a_frame_may_hold_rows_and_gradients(client):
    waiting = [asyncio.create_task(client.fetch([id_], 1)) for id_ in (1, 2)]
    both = ps_pb2.ExchangeRequest(table="t", rows=row_push([2], 1, 1.0).rows, gradients=GOOD_GRADIENTS.gradients)
    assert await client.send(both) == (2, 0)
    await waiting[1]
    assert await client.send(gradient_push(1, [1], 1, 0b11, 1.0)) == (1, 0)
    await waiting[0]
    assert await client.send(both) == (0, 2)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"table": "u"}, StatusCode.NOT_FOUND, "no table 'u'"),
        ({"ids": b"123"}, INVALID, "pulls.ids has 3 bytes"),
        ({"versions": bytes(16)}, INVALID, "pulls.versions has 16 bytes"),
        ({"ids": bytes(16), "versions": bytes(16)}, INVALID, "row 0 is named twice"),
        ({"versions": struct.pack("<q", -1)}, INVALID, "version of row 0 is -1"),
    ],
)
async def test_a_wrong_pull_is_refused(client, fields, code, text):
    fields = {"table": "t", "ids": bytes(8), "versions": bytes(8), **fields}
    pulls = ps_pb2.PullBlock(ids=fields["ids"], versions=fields["versions"])
    with refused(code, text):
        await client.send(ps_pb2.ExchangeRequest(table=fields["table"], pulls=pulls))


async def test_an_empty_pull_and_an_empty_push_are_answered(client):
    assert len((await client.fetch([], 0))[0]) == 0
    assert await client.send(row_push([], 1, 1.0)) == (0, 0)


async def test_a_look_up_returns_the_latest_values(client):
    await client.send(row_push([1, 2], 1, 0.5))
    await client.send(row_push([2], 4, 0.25))
    versions, values = await client.look_up(np.array([2, 9, 1, 2], np.uint64))
    assert versions.tolist() == [4, 0, 1, 4]
    assert values.shape == (4, SPEC.dimension)
    assert values[[0, 2, 3]].tolist() == [[v] * SPEC.dimension for v in (0.25, 0.5, 0.25)]
    np.testing.assert_array_equal(values[1], initial_rows(SPEC, np.array([9], np.uint64))[0, : SPEC.dimension])
    versions, values = await client.look_up(np.arange(40_000, dtype=np.uint64))  # more than a message
    assert np.flatnonzero(versions).tolist() == [1, 2]
    assert len(values) == 40_000


async def test_a_table_is_created_once_with_one_specification(client):
    assert not await client.create_table()
    with refused(FAILED, "table 't' exists with dimension 16 instead of 8"):
        await ServerClient(client.address, dataclasses.replace(SPEC, dimension=8)).create_table()
    with refused(INVALID, "optimizer.kind is 0"):
        await client.stub.CreateTable(ps_pb2.CreateTableRequest(), timeout=60)


async def test_two_servers_share_a_table_by_shard(start):
    clients = [await start(shard=shard, shards=2) for shard in range(2)]
    ids = np.arange(1000, dtype=np.uint64)
    owners = shard_of(ids, 2)
    for shard, client in enumerate(clients):
        await client.create_table()
        mine, foreign = ids[owners == shard], ids[owners != shard]
        assert await client.send(row_push(mine, 1, mine[:, None])) == (len(mine), 0)
        text = f"row {foreign[0]} belongs to shard {1 - shard}, this server is shard {shard} of 2"
        with refused(INVALID, text):
            await client.send(row_push(foreign, 1, 1.0))
        with refused(INVALID, text):
            await client.send(gradient_push(0, foreign, 1, 0b11, 1.0))
        with refused(INVALID, text):
            await client.fetch(foreign, 0)
        with refused(INVALID, text):
            await client.look_up(foreign)
        described = await client.describe()
        assert (described.shard, described.shards, described.tables[0].rows) == (shard, 2, len(mine))
        scanned, _, rows = await client.everything()
        np.testing.assert_array_equal(scanned, mine)
        np.testing.assert_array_equal(rows[:, 0], mine)


async def test_dense_parameters_come_back_whole(client):
    with refused(StatusCode.NOT_FOUND, "no dense parameters yet"):
        await client.get_dense()
    data = np.random.default_rng(0).bytes(3 * 2**20 + 1)
    assert await client.put_dense(data) == len(data)
    assert await client.get_dense() == data
    assert await client.put_dense(b"") == 0
    assert await client.get_dense() == b""


async def test_half_an_upload_is_not_stored(client):
    piece = ps_pb2.PutDenseRequest(table="t", data=b"half")
    with refused(INVALID, "ended after 4 bytes without its last chunk"):
        await client.stub.PutDense(iter([piece]), timeout=60)
    last = ps_pb2.PutDenseRequest(table="t", data=b"half", last=True)
    with refused(INVALID, "continues after the chunk that is marked as the last"):
        await client.stub.PutDense(iter([last, piece]), timeout=60)
    for other, subject in (({"table": "u"}, "'u' in epoch 0"), ({"table": "t", "epoch": 1}, "'t' in epoch 1")):
        with refused(INVALID, f"began for table 't' in epoch 0 and continues for table {subject}"):
            await client.stub.PutDense(iter([piece, ps_pb2.PutDenseRequest(last=True, **other)]), timeout=60)
    with refused(StatusCode.NOT_FOUND, "no dense parameters"):
        await client.get_dense()


async def test_dense_parameters_have_a_limit(start):
    client = await start(max_dense_bytes=1000)
    await client.create_table()
    assert await client.put_dense(bytes(1000)) == 1000
    with refused(StatusCode.RESOURCE_EXHAUSTED, "more than 1000 bytes; ESD_PS_MAX_DENSE_BYTES"):
        await client.put_dense(bytes(1001))


async def test_describe_tells_the_state(client):
    await client.send(row_push([1, 2], 1, 1.0), gradient_push(0, [3], 1, 0b11, 1.0))
    described = await client.describe()
    assert (described.store, described.shard, described.shards) == ("memory", 0, 1)
    (table,) = described.tables
    assert (table.spec.name, table.spec.dimension, table.rows, table.pending_gradients) == ("t", 16, 2, 1)
