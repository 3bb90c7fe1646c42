"""A restarted service returns to its address, which no other process got meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.services.clients.dispatcher_async import AsyncDispatcherClient


async def test_the_port_of_a_service_is_its_own_while_it_is_away(tmp_path: Path) -> None:
    async with LocalServices(shards=1, store="memory", worker_links=[1e6], cache_rows=[100], logs=tmp_path) as cluster:
        (worker,) = cluster.workers
        await worker.wait_ready()
        for service in cluster.services:
            address = service.address
            host, _, port = address.partition(":")
            service.process.kill()
            await service.process.wait()
            with socket.socket() as another, pytest.raises(OSError, match="Address already in use"):
                another.bind((host, int(port)))
            await service.restart()
            assert service.address == address
        async with AsyncDispatcherClient(cluster.dispatcher.address) as client:
            assert await client.describe() is None
