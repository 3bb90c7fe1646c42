"""The congestion control of a process's own TCP connections, where the kernel's default is the wrong one for it.

gRPC has no option for it, so the sockets are found among the open files of the process. An accepted connection has the
algorithm of the socket that listens.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_FILES = Path("/proc/self/fd")
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_PAUSE_SECONDS = 1.0


def check_congestion(algorithm: str) -> str:
    """Returns an algorithm that this process may choose; empty: the kernel's default, for any system.

    Raises:
        ValueError: it may not.
    """
    if algorithm and sys.platform != "linux":
        raise ValueError("only Linux lets a process choose the congestion control of its connections; leave it empty")
    if algorithm:
        with socket.socket() as probe:
            try:
                _choose(probe, algorithm)
            except OSError:
                raise ValueError(f"this kernel allows {_allowed()}; leave it empty for the kernel's default") from None
    return algorithm


@asynccontextmanager
async def congestion_control(algorithm: str) -> AsyncIterator[None]:
    """Gives all TCP sockets of this process an algorithm while the block runs; empty: leaves them alone.

    Sockets that are open now have it when the block begins, and later ones about a second after their opening: gRPC
    reports no socket, neither the first of a channel nor the next after a break.
    """
    if not algorithm:
        yield
        return
    known = _set_on_sockets(algorithm, frozenset())
    following = asyncio.create_task(_follow(algorithm, known))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


async def _follow(algorithm: str, known: Set[str]) -> None:
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        with suppress(OSError):  # the process has as many files open as it may; the next round looks again
            known = _set_on_sockets(algorithm, known)


def _set_on_sockets(algorithm: str, known: Set[str]) -> Set[str]:
    """Sets the algorithm of all sockets but the known ones, and returns the names of those that need no more visits."""
    settled = set()
    for file in _FILES.iterdir():
        with suppress(OSError):  # another thread has closed the file, and the next round sees what took its number
            name = str(file.readlink())
            if name.startswith("socket:"):
                if name not in known:
                    _set_on(int(file.name), algorithm)
                settled.add(name)
    return settled


def _set_on(number: int, algorithm: str) -> None:
    """Sets the algorithm of an open socket if it is one of TCP. Raises OSError if it is closed meanwhile."""
    copy = os.dup(number)  # which stays this socket, even if another thread closes the number
    try:
        opened = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with opened:
        if opened.family in (socket.AF_INET, socket.AF_INET6) and opened.type == socket.SOCK_STREAM:
            _choose(opened, algorithm)


def _choose(opened: socket.socket, algorithm: str) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())


def _allowed() -> str:
    try:
        return ", ".join(_ALLOWED.read_text().split())
    except OSError:  # some containers do not show it
        return "other ones"
