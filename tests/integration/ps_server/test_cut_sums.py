"""Streams of sums that are cut anywhere: every piece is summed once, and all members get the same bits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.sums import SumClient
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import DeadlineExceeded
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.frames import SPEC
from tests.support.sums import member

WORKERS, SHARDS = 2, 2
CUTS = 40  # of each link
LENGTHS = (40_000, 3, 700)  # of the vectors of an iteration; the first has pieces for both servers
PATIENCE = 5.0


@dataclass
class Deployment:
    """A link from each worker to each server."""

    links: list[list[CuttableProxy]]
    clients: list[SumClient]


@pytest.fixture
async def deployment():
    async with AsyncExitStack() as stack:
        addresses = []
        for shard in range(SHARDS):
            settings = ParameterServerSettings(shard=shard, shards=SHARDS, metrics_port=None, grace_seconds=0)
            server = await stack.enter_async_context(parameter_server(settings))
            async with ParameterServerConnection(server.address) as connection:
                await connection.create_table(SPEC)
            addresses.append(server.address)
        links, clients = [], []
        for slot in range(WORKERS):
            own = [await stack.enter_async_context(CuttableProxy.running(address)) for address in addresses]
            connections = [await stack.enter_async_context(ParameterServerConnection(each.address)) for each in own]
            client = SumClient(connections, member(slot, WORKERS, patience=PATIENCE), Traffic())
            stack.push_async_callback(client.close)
            links.append(own)
            clients.append(client)
        await asyncio.gather(*(client.join(60) for client in clients))
        yield Deployment(links, clients)


def vectors_of(slot: int, iteration: int) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng([slot, iteration])
    return [rng.normal(size=length).astype(np.float32) for length in LENGTHS]


def wants(slot: int, iteration: int, number: int) -> bool:
    """Whether a worker has a use for a sum: sometimes none of them has."""
    return bool(np.random.default_rng([7, slot, iteration, number]).integers(0, 3))


async def summed(client: SumClient, slot: int, iteration: int, wanted: Callable[..., bool] = wants) -> list[bytes]:
    vectors = vectors_of(slot, iteration)
    started = [
        client.start(iteration, vector, zeros=False, wanted=wanted(slot, iteration, number))
        for number, vector in enumerate(vectors)
    ]
    async with asyncio.timeout(60):
        await asyncio.gather(*map(asyncio.wrap_future, started))
    return [vector.tobytes() for vector in vectors]


async def test_streams_that_are_cut_at_random_bytes_sum_the_same_bits(deployment):
    """A worker that does not want a sum keeps its vector."""
    rng = np.random.default_rng(6)
    links = [link for own in deployment.links for link in own]
    for link in links:
        link.cut_after(1000, again=lambda: int(rng.integers(1, 250_000)))
    iteration = 0
    while min(link.cuts for link in links) < CUTS:
        found = await asyncio.gather(
            *(summed(client, slot, iteration) for slot, client in enumerate(deployment.clients))
        )
        own = [vectors_of(slot, iteration) for slot in range(WORKERS)]
        expected = [
            [
                (own[0][number] + own[1][number] if wants(slot, iteration, number) else own[slot][number]).tobytes()
                for number in range(len(LENGTHS))
            ]
            for slot in range(WORKERS)
        ]
        assert found == expected
        iteration += 1


async def test_a_link_that_is_down_for_a_while_is_waited_for(deployment):
    sums = (summed(client, slot, 0, lambda *_: True) for slot, client in enumerate(deployment.clients))
    outage = [link.cut_for(0.5) for link in deployment.links[1]]
    one, other, *_ = await asyncio.gather(*sums, *outage)
    assert one == other


async def test_a_client_that_leaves_while_its_link_is_cut_is_named_after_the_patience(deployment):
    """Its farewell is lost with the link."""
    for link in deployment.links[1]:
        link.refuse()
    await deployment.clients[1].close()
    with pytest.raises(DeadlineExceeded, match=r"worker slot 1 has not sent values .* of sum 0 in iteration 0 for"):
        await summed(deployment.clients[0], 0, 0)
