"""Pulls at exact versions and idempotent pushes, over real gRPC."""

import asyncio
import itertools

import numpy as np
from grpc import StatusCode

from tests.support.exchange import exchange
from tests.support.frames import SPEC, frame, gradient_push, row_push
from tests.support.ps_client import refused
from tests.support.reference import initial_rows


async def until_waiting(client, pulls):
    """Returns when this number of pulls waits."""
    async with asyncio.timeout(60):
        while (await client.describe()).tables[0].waiting_pulls != pulls:
            pass


async def test_a_new_row_has_its_initial_values_for_everybody(client, start):
    other = await start()
    await other.create_table()
    ids = np.array([3, 2**64 - 1, 0], np.uint64)
    for server in (client, other):
        versions, values = await server.look_up(ids)
        assert versions.tolist() == [0, 0, 0]
        np.testing.assert_array_equal(values, initial_rows(SPEC, ids))
        assert np.isnan((await server.fetch(ids, 0))[2]).all()  # a pull does not bring them: its caller makes them


async def test_a_pushed_row_is_pulled_and_a_stale_pull_refused(client):
    row = np.arange(SPEC.row_width)
    assert await client.send(row_push([5, 6], 3, row)) == (2, 0)
    _, versions, rows = await client.fetch([6, 5], 3)
    assert versions.tolist() == [3, 3]
    np.testing.assert_array_equal(rows, [row, row])
    with refused(StatusCode.FAILED_PRECONDITION, "row 5 is at version 3, the pull wants the older version 2"):
        await client.fetch([5], 2)


async def test_a_pull_waits_until_the_last_of_its_rows_is_pushed(client):
    pull = asyncio.create_task(client.fetch([1, 2, 3], [1, 0, 2]))
    await until_waiting(client, 1)
    await client.send(row_push([1], 1, 1.0))
    await client.send(row_push([3], 1, 9.0))  # not new enough
    await until_waiting(client, 1)
    await client.send(row_push([3], 2, 3.0))
    _, versions, rows = await pull
    assert versions.tolist() == [1, 0, 2]
    assert rows[[0, 2], 0].tolist() == [1, 3]


async def test_a_waiting_pull_that_is_overtaken_is_refused(client):
    pull = asyncio.create_task(client.fetch([1], 1))
    await until_waiting(client, 1)
    await client.send(row_push([1], 2, 1.0))
    with refused(StatusCode.FAILED_PRECONDITION, "row 1 is at version 2"):
        await pull


async def test_waiting_pulls_hold_no_threads(start):
    client = await start(store_threads=1)
    await client.create_table()
    pulls = [asyncio.create_task(client.fetch([row], 1)) for row in range(20)]
    await until_waiting(client, 20)
    await client.send(row_push(range(20), 1, 2.0))
    for _, versions, _ in await asyncio.gather(*pulls):
        assert versions.tolist() == [1]


async def test_a_wait_ends_when_the_frame_says(client):
    with refused(StatusCode.DEADLINE_EXCEEDED, "row 9 has not reached version 4 in time"):
        await client.fetch([8, 9], [0, 4], within=0.2)
    assert (await client.describe()).tables[0].waiting_pulls == 0


async def test_a_wait_ends_with_the_servers_limit(start):
    client = await start(pull_wait_seconds=0.05)
    await client.create_table()
    with refused(StatusCode.DEADLINE_EXCEEDED, "row 9 has not reached version 4"):
        await client.fetch([9], 4, within=60)


async def test_repeated_pushes_change_nothing(client):
    push = row_push([1, 2], 1, 1.0)
    assert await client.send(push, push) == (2, 2)
    assert await client.send(row_push([1], 1, 7.0)) == (0, 1)
    partial = gradient_push(0, [1], 2, 0b11, 0.5)
    assert await client.send(partial, partial) == (1, 1)
    last = gradient_push(1, [1], 2, 0b11, 0.25)
    assert await client.send(last) == (1, 0)
    before = await client.fetch([1], 2)
    assert await client.send(last, partial, push) == (0, 4)
    np.testing.assert_array_equal((await client.fetch([1], 2))[2], before[2])
    table = (await client.describe()).tables[0]
    assert (table.rows, table.pending_gradients) == (2, 0)


async def test_contributions_in_any_order_give_the_same_bits(start):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, SPEC.row_width)) ** 2
    parts = [rng.standard_normal((40, SPEC.dimension)) * 10.0 ** (3 * worker) for worker in range(3)]
    results = set()
    for order in itertools.permutations(range(3)):
        client = await start()
        await client.create_table()
        await client.send(row_push(range(40), 1, rows))
        for worker in order:
            await client.send(gradient_push(worker, range(40), 2, 0b111, parts[worker], step=7))
        results.add((await client.fetch(range(40), 2))[2].tobytes())
    assert len(results) == 1


async def test_the_last_contribution_releases_a_pull(client):
    await client.send(gradient_push(4, [1], 1, 1 << 4 | 1 << 63, 0.5))
    pull = asyncio.create_task(client.fetch([1], 1))
    await until_waiting(client, 1)
    await client.send(gradient_push(63, [1], 1, 1 << 4 | 1 << 63, 0.5))
    assert (await pull)[1].tolist() == [1]


async def test_a_push_of_a_client_that_hangs_up_still_releases_pulls(client):
    pull = asyncio.create_task(client.fetch([1], 1))
    await until_waiting(client, 1)
    async with exchange(client.channel) as stream:
        await stream.write(frame(1, row_push([1], 1, 1.0)))
    assert (await pull)[1].tolist() == [1]
