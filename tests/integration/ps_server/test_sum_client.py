"""The client of sums, over two shards: any vectors, from a thread; and the end of a server or of another member."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import AsyncExitStack

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.sums import SumClient
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import DeadlineExceeded, InvalidArgument, Unavailable
from esd.services.runtime import metrics
from tests.support.frames import SPEC
from tests.support.sums import member

WORKERS, SHARDS = 3, 2


class SlowLink(Traffic):
    """Counts the bytes that pass, part by part, and the messages."""

    chunk_bytes = 10_000

    def __init__(self, joined_bytes: int = 10_000) -> None:
        self.joined_bytes = joined_bytes
        self.parts: list[int] = []
        self.messages = 0

    def sent(self, **_: int) -> None:
        self.messages += 1

    async def send(self, size: int) -> None:
        self.parts.append(size)
        await asyncio.sleep(0)


@pytest.fixture
async def servers():
    """Two shards with the table; stopping one is up to the test."""
    async with AsyncExitStack() as stack:
        stacks, addresses = [], []
        for shard in range(SHARDS):
            own = await stack.enter_async_context(AsyncExitStack())
            settings = ParameterServerSettings(shard=shard, shards=SHARDS, metrics_port=None, grace_seconds=0)
            server = await own.enter_async_context(parameter_server(settings))
            async with ParameterServerConnection(server.address) as connection:
                await connection.create_table(SPEC)
            stacks.append(own)
            addresses.append(server.address)
        yield stacks, addresses


async def open_clients(stack: AsyncExitStack, addresses, workers: int = WORKERS, **how) -> list[SumClient]:
    clients = []
    for slot in range(workers):
        connections = [await stack.enter_async_context(ParameterServerConnection(each)) for each in addresses]
        client = SumClient(connections, member(slot, WORKERS, **how), SlowLink())
        stack.push_async_callback(client.close)
        clients.append(client)
    return clients


def start_all(client: SumClient, iteration: int, vectors) -> list[Future[None]]:
    return [client.start(iteration, each, zeros=False) for each in vectors]


async def results(*futures: Future[None]) -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(*map(asyncio.wrap_future, futures))


async def test_vectors_of_any_length_and_type_are_summed_with_the_same_bits_everywhere(servers):
    rng = np.random.default_rng(2)
    async with AsyncExitStack() as stack:
        clients = await open_clients(stack, servers[1])
        await asyncio.gather(*(client.join(10) for client in clients))
        for iteration in range(2):
            makers = [lambda: rng.normal(size=100_003).astype(np.float32), lambda: np.empty(0, np.float32)]
            makers += [lambda: rng.normal(size=5), lambda: rng.integers(0, 9, 20_000)]
            vectors = [[maker() for maker in makers] for _ in clients]
            expected = [sum(each[1:], each[0].copy()) for each in zip(*vectors, strict=True)]
            started = [
                asyncio.to_thread(start_all, client, iteration, own)
                for client, own in zip(clients, vectors, strict=True)
            ]
            await results(*(future for each in await asyncio.gather(*started) for future in each))
            for own in vectors:
                assert [each.tobytes() for each in own] == [each.tobytes() for each in expected]


async def test_pieces_travel_together_where_the_link_is_fast(servers):
    """The sum is the same where members divide their pieces into other messages."""
    vectors = [np.full(2**20, slot + 1, np.float32) for slot in range(WORKERS)]  # 16 pieces of 256 KiB, 8 for a server
    links = [SlowLink(), SlowLink(600_000), SlowLink(2**30)]  # the longest message has 512 KiB
    async with AsyncExitStack() as stack:
        clients = []
        for slot, link in enumerate(links):
            connections = [await stack.enter_async_context(ParameterServerConnection(each)) for each in servers[1]]
            client = SumClient(connections, member(slot, WORKERS), link)
            stack.push_async_callback(client.close)
            clients.append(client)
        await asyncio.gather(*(client.join(10) for client in clients))
        await results(*(client.start(0, each, zeros=False) for client, each in zip(clients, vectors, strict=True)))
    for vector in vectors:
        np.testing.assert_array_equal(vector, 6)
    assert [link.messages for link in links] == [16, 8, 8]


async def test_zeros_are_replaced_by_the_sum_and_take_no_room_on_the_link(servers):
    async with AsyncExitStack() as stack:
        clients = await open_clients(stack, servers[1])
        await asyncio.gather(*(client.join(10) for client in clients))
        vectors = [np.ones(100_000, np.float32), np.zeros(100_000, np.float32), np.ones(100_000, np.float32)]
        counters = [metrics.DENSE_BYTES.labels("server", operation) for operation in ("sent", "received")]
        before = [counter._value.get() for counter in counters]
        futures = [
            client.start(0, vector, zeros=not vector.any()) for client, vector in zip(clients, vectors, strict=True)
        ]
        await results(*futures)
        assert all((vector == 2).all() for vector in vectors)
        sent = [sum(client._traffic.parts) for client in clients]
        assert sent[1] < 500 < 400_000 < min(sent[0], sent[2])
        counted = [counter._value.get() - each for counter, each in zip(counters, before, strict=True)]
        assert counted[0] == sum(sent)
        assert 3 * 400_000 < counted[1] < 3 * 401_000
        assert max(clients[0]._traffic.parts) == SlowLink.chunk_bytes  # others may pass between the parts of a piece


async def test_a_member_that_leaves_ends_the_sums_of_the_others(servers):
    async with AsyncExitStack() as stack:
        one, other, last = await open_clients(stack, servers[1])
        await asyncio.gather(*(client.join(10) for client in (one, other, last)))
        waiting = one.start(0, np.ones(100_000, np.float32), zeros=False)
        await other.close()
        with pytest.raises(Unavailable, match="worker slot 1 has left the sums"):
            await results(waiting)
        with pytest.raises(Unavailable, match="worker slot 1 has left the sums"):
            await results(one.start(1, np.ones(3, np.float32), zeros=False))
        last.leave()
        with pytest.raises(Unavailable, match="left the"):
            await results(last.start(0, np.ones(3, np.float32), zeros=False))


async def test_a_server_that_is_away_for_too_long_ends_the_sums(servers):
    stacks, addresses = servers
    async with AsyncExitStack() as stack:
        clients = await open_clients(stack, addresses)
        await asyncio.gather(*(client.join(1) for client in clients))
        waiting = [client.start(0, np.ones(100_000, np.float32), zeros=False) for client in clients[:2]]
        await stacks[1].aclose()
        for future in waiting:
            with pytest.raises(Unavailable):
                await results(future)


async def test_a_gradient_that_is_not_finite_ends_its_sender_with_its_name_and_the_iteration(servers):
    async with AsyncExitStack() as stack:
        clients = await open_clients(stack, servers[1])
        await asyncio.gather(*(client.join(10) for client in clients))
        bad = np.array([1, np.nan], np.float32)
        failed = clients[2].start(17, bad, zeros=False)
        with pytest.raises(InvalidArgument, match=r"worker slot 2 has sent values 0 to 1 .*in iteration 17 .*NaN"):
            await results(failed)
        with pytest.raises(Unavailable, match=r"refused worker slot 2: .* NaN"):
            await results(clients[0].start(17, np.ones(2, np.float32), zeros=False))


async def test_members_that_do_not_come_are_named_and_a_server_that_is_away_is_waited_for(servers):
    async with AsyncExitStack() as stack:
        clients = await open_clients(stack, servers[1], workers=2, patience=0.5)
        with pytest.raises(DeadlineExceeded, match="worker slot 2 has not come"):
            await asyncio.gather(*(client.join(0.2) for client in clients))
        (alone,) = await open_clients(stack, ["127.0.0.1:1"], workers=1)
        with pytest.raises(Unavailable, match=r"no connection is accepted at 127\.0\.0\.1:1"):
            await alone.join(0.2)
