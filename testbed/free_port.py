"""Ports for servers that cannot choose one themselves, or that return to the same one."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

DRAWN: set[int] = set()  # by this process


def free_port() -> int:
    """A port on which no server listens.

    It lies outside the range from which the kernel takes the ports of outgoing connections. No connection takes it
    before the server listens, nor while the server is away. No port is drawn twice by a process, because the first
    server may not listen yet.
    """
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    every = range(11_000, 2**16)  # browsers refuse some of those below
    ports = [port for port in every if not first <= port <= last] or every
    while True:
        port = secrets.choice(ports)
        if port in DRAWN:
            continue
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            DRAWN.add(port)
            return port
