"""The congestion control of a process's own connections: of both ends, also after a break."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

POLL_SECONDS = 0.01
_IPV4 = Path("/proc/sys/net/ipv4")


def another() -> str:
    """An algorithm that every process may choose, and that is not the default."""
    default = (_IPV4 / "tcp_congestion_control").read_text().strip()
    allowed = (_IPV4 / "tcp_allowed_congestion_control").read_text().split()
    others = [each for each in allowed if each != default]
    if not others:
        pytest.skip(f"this kernel allows {default} alone")
    return others[0]


def sockets(port: int) -> Iterator[socket.socket]:
    """The TCP sockets of this process that listen at a port, or are an end of a connection to it."""
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it is closed meanwhile, or has no peer
            if str(file.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(file.name))) as found:
                    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
                        continue
                    peer = None if listens(found) else found.getpeername()[1]
                    if port in (found.getsockname()[1], peer):
                        yield found


def listens(found: socket.socket) -> bool:
    return bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def algorithms(port: int) -> list[str]:
    """The algorithms of these sockets; the listening one comes first."""
    found = sorted((not listens(each), algorithm_of(each)) for each in sockets(port))
    return [algorithm for _, algorithm in found]


def algorithm_of(found: socket.socket) -> str:
    return found.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


async def until_both_ends_have(algorithm: str, port: int) -> None:
    async with asyncio.timeout(60):
        while algorithms(port) != [algorithm] * 3:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(POLL_SECONDS)


async def test_both_ends_of_connections_have_the_algorithm_also_after_a_break(serve_toy: Any) -> None:
    chosen = another()
    async with serve_toy(congestion=chosen) as toy:
        port = int(toy.server.address.rpartition(":")[2])
        assert algorithms(port) == [chosen], "of the socket that listens, from the beginning"
        await toy.create("first")
        await until_both_ends_have(chosen, port)

        connected = {each.getsockname() for each in sockets(port)}
        for each in sockets(port):
            if not listens(each):
                each.shutdown(socket.SHUT_RDWR)
        await toy.create("second")
        await until_both_ends_have(chosen, port)
        assert len(connected & {each.getsockname() for each in sockets(port)}) == 1, "the listening one alone is left"


async def test_without_a_choice_sockets_have_the_default_of_the_kernel(toy: Any) -> None:
    await toy.create("first")
    default = (_IPV4 / "tcp_congestion_control").read_text().strip()
    assert algorithms(int(toy.server.address.rpartition(":")[2])) == [default] * 3
