"""The parameter server over a real Redis and a real Valkey: restarts, outages, refusals to start."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from contextlib import AsyncExitStack
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from redis import Redis

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.valkey import valkey_server
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, StorageUnwritable, Unavailable
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.retry import repeated
from testbed.free_port import free_port
from testbed.redis_server import redis_server
from tests.support.frames import SPEC, gradient_push, row_push
from tests.support.ps_client import Client, refused
from tests.support.redis_cluster import await_cluster, await_ping, await_takeover, redis_cluster
from tests.support.stores import PATIENCE_SECONDS, open_url, rows_of
from tests.support.stores import SPEC as STORED


async def started(**environment):
    """`python -m esd.ps_server` as a process, and its ready line (None if it ended instead)."""
    patient = {"ESD_PS_STORE_TIMEOUT_SECONDS": f"{PATIENCE_SECONDS}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esd.ps_server",
        env={**os.environ, **patient, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    line = await process.stdout.readline()
    return process, json.loads(line) if line else None


@pytest.fixture(params=["redis", "valkey"])
def own_redis(request, tmp_path):
    """A server that the test may kill and start again."""
    with redis_server(tmp_path, program="redis-server" if request.param == "redis" else valkey_server()) as server:
        yield server


@pytest.fixture
async def processes():
    """Starts parameter servers as processes on a Redis; RuntimeError has the output of a server that does not start."""
    async with AsyncExitStack() as stack:

        async def start_process(redis):
            process, ready = await started(ESD_PS_STORE=redis.url, ESD_PS_METRICS_PORT="none")
            if ready is None:
                said = (await process.stderr.read()).decode()
                raise RuntimeError(f"{said} (exit code {await process.wait()})")
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
            return SimpleNamespace(process=process, address=ready["address"])

        yield start_process


async def open_ended(store):
    """Enters a server that is expected to refuse."""
    async with parameter_server(ParameterServerSettings(store=store, metrics_port=None)):
        raise AssertionError("it started")


async def test_a_killed_server_continues_from_redis(own_redis, start):
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((3, 600, SPEC.dimension)).astype(np.float32)
    ids = rng.permutation(600)
    environment = {"ESD_PS_STORE": own_redis.url, "ESD_PS_METRICS_PORT": "none"}
    process, ready = await started(**environment)
    async with Client(ready["address"]) as client:
        await client.create_table()
        await client.send(row_push(ids, 4, 1.0))
        await client.send(gradient_push(2, ids, 5, 0b111, parts[2]))
        await client.send(gradient_push(0, ids, 5, 0b111, parts[0]))
        await client.put_dense(b"dense")
    process.send_signal(signal.SIGKILL)
    await process.wait()
    own_redis.kill()
    own_redis.start()

    process, ready = await started(**environment)
    async with Client(ready["address"]) as client:
        assert not await client.create_table()
        (table,) = (await client.describe()).tables
        assert (table.rows, table.pending_gradients) == (600, 1200)
        assert await client.get_dense() == b"dense"
        assert await client.send(gradient_push(0, ids, 5, 0b111, parts[0])) == (0, 600)
        assert await client.send(gradient_push(1, ids, 5, 0b111, parts[1])) == (600, 0)
        trained = await client.fetch(ids, 5)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0

    undisturbed = await start()
    await undisturbed.create_table()
    await undisturbed.send(row_push(ids, 4, 1.0))
    for worker in range(3):
        await undisturbed.send(gradient_push(worker, ids, 5, 0b111, parts[worker]))
    np.testing.assert_array_equal(trained[2], (await undisturbed.fetch(ids, 5))[2])


async def test_a_second_server_is_refused_and_the_first_goes_on(own_redis, processes):
    first = await processes(own_redis)
    async with Client(first.address) as client:
        await client.create_table()
        await client.send(row_push(range(300), 1, 1.0))
        with pytest.raises(
            RuntimeError, match=r"parameter server 0 of 1 runs on Redis at 127.0.0.1:\d+, or last renewed its claim"
        ):
            await processes(own_redis)
        assert await client.send(row_push(range(300), 2, 2.0)) == (300, 0)
        ids, versions, rows = await client.everything()
    assert (ids.tolist(), set(versions.tolist()), set(rows.ravel().tolist())) == (list(range(300)), {2}, {2.0})


async def test_a_frozen_server_that_wakes_up_after_a_takeover_writes_nothing(own_redis, processes):
    first = await processes(own_redis)
    async with Client(first.address) as client:
        await client.create_table()
        await client.send(row_push(range(300), 1, 1.0), gradient_push(0, [500], 1, 0b11, 1.0))
        first.process.send_signal(signal.SIGSTOP)
        own_redis.cli("hset", "esd:servers", "0:until", "0")  # as if it had been frozen for long
        second = await processes(own_redis)
        async with Client(second.address) as other:
            await other.send(row_push(range(300), 3, 3.0))
            first.process.send_signal(signal.SIGCONT)
            lost = "lost its shard of Redis at .* another one has taken over"
            for write in (
                lambda: client.send(row_push(range(300), 9, 9.0)),
                lambda: client.send(gradient_push(1, [500], 1, 0b11, 9.0)),
                lambda: client.put_dense(b"old"),
                lambda: client.cut(5, 0, WorkerSet(1), epoch=0),
            ):
                with refused(StatusCode.FAILED_PRECONDITION, lost):
                    await write()
            states = aiter(
                health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
            )
            while (await anext(states)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
                pass
            with refused(StatusCode.FAILED_PRECONDITION, lost):  # it does not even read
                await client.fetch([1], 3)
            _, versions, rows = await other.everything()
            assert (set(versions.tolist()), set(rows.ravel().tolist())) == ({3}, {3.0})
            assert await other.send(gradient_push(1, [500], 1, 0b11, 1.0)) == (1, 0)


def go_back(redis, directory):
    """Lets Redis come back as it was when its files were copied to a directory."""
    redis.kill()
    shutil.rmtree(redis.directory / "appendonlydir")
    shutil.copytree(directory, redis.directory / "appendonlydir")
    redis.start()


@pytest.mark.parametrize(
    ("accident", "text"),
    [
        (lambda redis, _: redis.cli("hset", "esd:servers", "0", "of another"), "lost its shard of Redis"),
        (lambda redis, _: redis.cli("flushall"), "has lost its data, or is another one: the claim .* is gone"),
        (lambda redis, _: lose_rows(redis, 400), r"has lost \d+ rows or more"),
        (go_back, "has lost its data, or is another one: it is as it was earlier"),
        (lambda redis, _: redis.cli("set", "esd:servers", "x"), "holds a value of another type"),
    ],
)
async def test_a_store_that_is_not_what_it_was_is_noticed_at_once_and_named(accident, text, own_redis, start, tmp_path):
    """A pull that waits for a row which will not come ends, too."""
    client = await start(store=own_redis.url, pull_wait_seconds=240)
    await client.create_table()
    await client.send(row_push(range(600), 1, 1.0))
    shutil.copytree(own_redis.directory / "appendonlydir", tmp_path / "earlier")
    await asyncio.to_thread(await_ping, own_redis)
    await client.send(row_push(range(600), 2, 2.0))
    waiting = asyncio.create_task(client.fetch([700], 1, within=240))
    for _ in range(1000):
        if (await client.describe()).tables[0].waiting_pulls:
            break
    await asyncio.to_thread(accident, own_redis, tmp_path / "earlier")
    with refused(StatusCode.FAILED_PRECONDITION, text):
        async with asyncio.timeout(60):  # not for the 240 s of the pull
            await waiting
    with refused(StatusCode.FAILED_PRECONDITION, text):
        await client.fetch([1], 2)


def lose_rows(redis, count):
    """Removes rows from Redis without their parameter server."""
    with Redis(port=redis.port) as client:
        rows = [(key, field) for key in client.scan_iter("e:*") for field in client.hkeys(key)]
        for key, field in rows[:count]:
            client.hdel(key, field)


async def test_rows_that_were_lost_meanwhile_are_named_when_a_server_starts(own_redis):
    settings = ParameterServerSettings(store=own_redis.url, store_timeout_seconds=PATIENCE_SECONDS, metrics_port=None)
    async with parameter_server(settings) as server, Client(server.address) as client:
        await client.create_table()
        await client.send(row_push(range(600), 1, 1.0))
    lose_rows(own_redis, 300)
    with pytest.raises(FailedPrecondition, match=r"has lost \d+ rows or more"):
        await open_ended(own_redis.url)


async def test_a_row_whose_version_is_gone_is_damaged(own_redis, start):
    client = await start(store=own_redis.url)
    await client.create_table()
    await client.send(row_push([5], 3, 1.0))
    direct = Redis(port=own_redis.port)
    (key,) = direct.scan_iter("e:*")
    ((field, record),) = direct.hgetall(key).items()
    direct.hset(key, field, bytes(8) + record[8:])
    direct.close()
    with refused(StatusCode.FAILED_PRECONDITION, "row 5 in Redis is damaged"):
        await client.fetch([5], 3)


async def test_while_redis_is_away_calls_are_unavailable_and_nothing_is_lost(own_redis, start):
    url = own_redis.url.replace("redis://", "redis://default:hunter2@")
    own_redis.cli("acl", "setuser", "default", ">hunter2", "nopass")
    address = (await start(store=url)).address
    async with grpc.aio.insecure_channel(address) as opened:  # without retries
        client = Client(address, opened)
        await client.create_table()
        await client.send(row_push([1], 1, 1.0), gradient_push(0, [2], 1, 0b11, 1.0))
        own_redis.kill()
        away = f"^Redis at {own_redis.address} is out of reach"
        with refused(StatusCode.UNAVAILABLE, away) as caught:
            await client.send(gradient_push(1, [2], 1, 0b11, 1.0))
        assert "hunter2" not in str(caught.value)
        with refused(StatusCode.UNAVAILABLE, away):
            await client.fetch([1], 1)
        with refused(StatusCode.UNAVAILABLE, away):
            await client.put_dense(b"dense")

        states = aiter(health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest(), timeout=60))
        while (await anext(states)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
            pass
        own_redis.start()
        while (await anext(states)).status != health_pb2.HealthCheckResponse.SERVING:
            pass
        assert await client.send(gradient_push(1, [2], 1, 0b11, 1.0)) == (1, 0)
        assert (await client.fetch([1, 2], 1))[1].tolist() == [1, 1]


async def test_a_server_that_cannot_reach_redis_says_so_and_ends():
    port = free_port()
    process, ready = await started(ESD_PS_STORE=f"redis://user:hunter2@127.0.0.1:{port}/0")
    said = (await process.stderr.read()).decode()
    assert ready is None
    assert await process.wait() == 1
    assert said.splitlines()[-1].startswith(f"error: Redis at 127.0.0.1:{port} is out of reach")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("store", "error", "text"),
    [
        ("mysql://x", InvalidArgument, "store 'mysql' is neither memory"),
        ("redis://:0bad", InvalidArgument, "the store URL must be redis://"),
        ("redis://127.0.0.1:1/esd", InvalidArgument, "db being a number"),
        ("redis://127.0.0.1:1/1/2", InvalidArgument, "db being a number"),
        ("redis+cluster://127.0.0.1:1/3", InvalidArgument, "or redis\\+cluster://host:port"),
        ("redis+cluster://127.0.0.1:1", Unavailable, "Redis at 127.0.0.1:1 is out of reach"),
    ],
)
async def test_impossible_stores_are_refused(store, error, text):
    with pytest.raises(error, match=text):
        await open_ended(store)


async def test_a_redis_that_would_drop_rows_is_refused(tmp_path):
    options = "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"
    text = "would drop rows when full: its maxmemory-policy is allkeys-lru"
    with redis_server(tmp_path, *options) as server, pytest.raises(FailedPrecondition, match=text):
        await open_ended(server.url)


async def test_a_database_that_redis_has_not_is_named_as_such(redis_url):
    with pytest.raises(FailedPrecondition, match=r"has no database of the number .*`databases`"):
        await open_ended(redis_url.rpartition("/")[0] + "/99999")


async def test_a_wrong_password_is_named_as_such(tmp_path):
    with redis_server(tmp_path) as server:
        server.cli("config", "set", "requirepass", "secret")
        with pytest.raises(FailedPrecondition, match="refuses our user or password"):
            await open_ended(server.url)


async def test_a_password_may_hold_what_makes_a_scheme_that_of_a_cluster(tmp_path, start):
    with redis_server(tmp_path, "--requirepass", "se+cluster") as server:
        client = await start(store=server.url.replace("//", "//:se+cluster@"))
        await client.create_table()


async def test_a_full_redis_refuses_by_name_until_there_is_room(tmp_path, start):
    """As a full disk does: workers wait for room with this error, and with no other of its code."""
    with redis_server(tmp_path, "--maxmemory-policy", "noeviction") as server:
        client = await start(store=server.url)
        await client.create_table()
        server.cli("config", "set", "maxmemory", "1mb")
        with refused(StatusCode.RESOURCE_EXHAUSTED, "is full; raise its maxmemory") as refusal:
            await client.send(row_push(range(10), 1, 1.0))
        assert isinstance(refusal.value, StorageUnwritable)
        server.cli("config", "set", "maxmemory", "0")
        assert await client.send(row_push(range(10), 1, 1.0)) == (10, 0)


@pytest.mark.parametrize("busy", [False, True], ids=["too few replicas", "a script of somebody else's runs"])
async def test_a_redis_that_is_not_ready_for_a_while_is_waited_for(own_redis, start, busy):
    address = (await start(store=own_redis.url)).address
    async with grpc.aio.insecure_channel(address) as opened, AsyncExitStack() as unready:  # without retries
        client = Client(address, opened)
        await client.create_table()
        if busy:
            own_redis.cli("config", "set", "lua-time-limit", "1")
            endless = asyncio.create_task(asyncio.to_thread(own_redis.cli, "eval", "while true do end", "0"))
            unready.push_async_callback(asyncio.gather, endless, return_exceptions=True)
            unready.callback(own_redis.cli, "script", "kill")
        else:
            own_redis.cli("config", "set", "min-replicas-to-write", "1")
            unready.callback(own_redis.cli, "config", "set", "min-replicas-to-write", "0")
        states = aiter(health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest(), timeout=60))
        while (await anext(states)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
            pass
        with refused(StatusCode.UNAVAILABLE, f"^Redis at {own_redis.address} is not ready: "):
            await client.send(row_push([1], 1, 1.0))
        await unready.aclose()
        while (await anext(states)).status != health_pb2.HealthCheckResponse.SERVING:
            pass
        assert await client.send(row_push([1], 1, 1.0)) == (1, 0)


async def test_a_cluster_serves_like_one_redis(redis_cluster_url, start):
    client = await start(store=redis_cluster_url)
    await client.create_table()
    ids = np.arange(5000, dtype=np.uint64)
    assert await client.send(*(row_push(part, 1, part[:, None]) for part in np.array_split(ids, 5))) == (5000, 0)
    _, _, rows = await client.fetch(ids[::-1], 1)
    np.testing.assert_array_equal(rows[:, 0], ids[::-1])
    assert (await client.everything())[0].tolist() == ids.tolist()


async def test_a_cluster_node_that_is_away_makes_calls_unavailable_until_it_is_back(tmp_path, start):
    ids = np.arange(200, dtype=np.uint64)  # on all nodes
    with redis_cluster(tmp_path) as nodes:
        address = (await start(store=f"redis+cluster://{nodes[0].address}")).address
        async with grpc.aio.insecure_channel(address) as opened:  # without retries
            client = Client(address, opened)
            await client.create_table()
            await client.send(row_push(ids, 1, 1.0))
            nodes[2].kill()
            with refused(StatusCode.UNAVAILABLE, "^Redis at"):
                await client.send(row_push(ids, 2, 2.0))
            nodes[2].start()
            await_cluster(nodes)
            stored, known = await client.send(row_push(ids, 2, 2.0))
            assert stored + known == len(ids)
            assert (await client.fetch(ids, 2))[2][:, 0].tolist() == [2] * len(ids)


async def assert_lost(client, call):
    """The server says that Redis has lost its data, now and from now on."""
    with refused(StatusCode.FAILED_PRECONDITION, "has lost its data, or is another one"):
        await call
    with refused(StatusCode.FAILED_PRECONDITION, "has lost its data"):
        await client.fetch([1], 0)


async def test_a_redis_that_comes_back_empty_is_refused(own_redis, start):
    client = await start(store=own_redis.url)
    await client.create_table()
    await client.send(row_push([1, 2], 1, 1.0))
    own_redis.kill()
    for file in (own_redis.directory / "appendonlydir").iterdir():
        file.unlink()
    own_redis.start()
    # gRPC repeats what finds the connection broken.
    await assert_lost(client, client.send(row_push([1], 2, 2.0)))
    states = aiter(health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    while (await anext(states)).status != health_pb2.HealthCheckResponse.NOT_SERVING:
        pass


async def test_a_cluster_node_that_comes_back_empty_is_refused(tmp_path, start):
    ids = np.arange(200, dtype=np.uint64)  # on all nodes
    with redis_cluster(tmp_path) as nodes:
        url = f"redis+cluster://{nodes[0].address}"
        client = await start(store=url)
        await client.create_table()
        await client.send(row_push(ids, 1, 1.0))
        nodes[1].cli("flushall")
        nodes[1].kill()
        nodes[1].start()
        await_cluster(nodes)
        await assert_lost(client, client.send(row_push(ids, 2, 2.0)))
        with pytest.raises(FailedPrecondition, match="has lost its data"):
            await open_ended(url)


async def test_a_cluster_fails_over_and_has_all_that_was_acknowledged(tmp_path, start):
    ids = np.arange(600, dtype=np.uint64)  # on all nodes
    with redis_cluster(tmp_path, replicas=1) as nodes:
        client = await start(store=f"redis+cluster://{nodes[0].address}")
        await client.create_table()
        for version in range(1, 6):
            await client.send(row_push(ids, version, float(version)))
        nodes[0].kill()
        await_cluster(nodes[1:])

        _, versions, rows = await repeated(lambda: client.fetch(ids, 5), 60)
        assert versions.tolist() == [5] * len(ids)
        assert rows[:, 0].tolist() == [5.0] * len(ids)
        async with asyncio.timeout(60):  # a primary that has lost its replica does not wait for it
            for version in range(6, 26):
                assert await client.send(row_push(ids, version, float(version))) == (600, 0)


async def test_a_primary_that_was_replaced_while_it_hung_acknowledges_nothing(tmp_path, start):
    """It wakes up, runs the commands in its sockets, and only then learns that it is no primary any more."""
    ids = np.arange(600, dtype=np.uint64)  # on all nodes
    with redis_cluster(tmp_path, replicas=1) as nodes:
        client = await start(store=f"redis+cluster://{nodes[1].address}", store_timeout_seconds=30.0)
        await client.create_table()
        await client.send(row_push(ids, 1, 1.0))

        nodes[0].process.send_signal(signal.SIGSTOP)
        try:
            pushing = asyncio.create_task(repeated(lambda: client.send(row_push(ids, 2, 2.0)), 60))
            await asyncio.to_thread(await_takeover, nodes[0], nodes[1:])
        finally:
            nodes[0].process.send_signal(signal.SIGCONT)
        await pushing
        _, versions, _ = await client.fetch(ids, 2)
        assert versions.tolist() == [2] * len(ids)


def test_a_repeated_push_writes_too_so_that_it_waits_for_a_replica(own_redis):
    """WAIT may be answered at once on a connection that has written nothing: the first push may have used another."""

    def written():
        return re.search(r"aof_current_size:(\d+)", own_redis.cli("info", "persistence")).group(1)

    store = open_url(own_redis.url)
    store.create(STORED)
    table = store.open(STORED)
    block = rows_of(np.random.default_rng(0), range(10), version=3)
    assert table.rows.write_newer(block).all()
    once, totals = written(), table.rows.totals()
    assert not table.rows.write_newer(block).any()
    assert written() != once
    assert table.rows.totals() == totals
    store.close()
