"""The small web server of metrics and page: idle peers take a bounded number of its files, for a bounded time."""

from __future__ import annotations

import asyncio
import resource
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from esd.services.runtime import http, process


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def idle_connections(address: str, count: int) -> list[asyncio.StreamWriter]:
    """Opens connections that say nothing."""
    host, _, port = address.rpartition(":")
    opened = await asyncio.gather(*(asyncio.open_connection(host, int(port)) for _ in range(count)))
    return [writer for _, writer in opened]


async def test_idle_connections_take_few_files_and_leave_grpc_alone(
    serve_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_CONNECTIONS", 4)
    monkeypatch.setattr(http, "_HEAD_SECONDS", 0.2)
    async with serve_toy(metrics_port=0) as toy:
        await toy.create("fine")
        before = open_files()
        # As many as the kernel keeps for a server that accepts none of them; their own ends are files here, too.
        idle = await idle_connections(toy.server.metrics_address, 40)
        assert (await toy.create("fine")).created
        assert open_files() - before <= 40 + 4
        # Those that are served give way within their time, so that somebody who asks gets an answer.
        url = f"http://{toy.server.metrics_address}/metrics"
        with await asyncio.to_thread(urllib.request.urlopen, url, timeout=60) as answer:
            assert answer.status == 200
        for writer in idle:
            writer.close()


async def test_a_peer_that_does_not_read_its_answer_is_let_go(serve_toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PATIENCE_SECONDS", 0.2)
    async with serve_toy(metrics_port=0) as toy:
        (writer,) = await idle_connections(toy.server.metrics_address, 1)
        before = open_files()
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(60):
            while open_files() > before:  # noqa: ASYNC110 - a closed file tells nobody
                await asyncio.sleep(0.01)
        writer.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", b"200"),
        ("localhost:9100", b"200"),
        ("esd.localhost", b"200"),
        ("[::1]:80", b"200"),
        ("evil.example", b"421"),
        ("evil.example:80", b"421"),
        ("127.0.0.1.evil.example", b"421"),
        ("10.0.0.1", b"421"),
        ("localhost\r\nHost: evil.example", b"421"),
    ],
)
async def test_at_a_loopback_address_other_hosts_are_refused(serve_toy: Any, host: str, status: bytes) -> None:
    """A page of the web whose name resolves to 127.0.0.1 would read the answers otherwise."""
    async with serve_toy(metrics_port=0) as toy:
        reader, writer = await asyncio.open_connection(*toy.server.metrics_address.rsplit(":", 1))
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await reader.read()).split(b" ")[1] == status
        writer.close()


@pytest.fixture
def few_files() -> Iterator[int]:
    """A process that may open 1,024 files, as many systems have it; yields how many it might."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_service_may_open_more_files_than_a_system_grants_at_first(few_files: int) -> None:
    process._allow_files()  # `run` ends the process
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == few_files
    assert soft == min(hard, 65_536)
