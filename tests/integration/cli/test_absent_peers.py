"""No command waits long for a peer that is not there without a line that names the peer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

_DATA = ("--data", "synthetic:zipf?fields=2&keys=50&samples=600", "--batch", "3", "--dim", "4")
_WORKER = ("--name", "w0", "--link", "50m", "--cache-rows", "100", "--listen", "127.0.0.1:0", "--metrics-port", "")

_CLUSTER = """
name = "esd"
version = "local"
head = "head"
hosts = [
  { name = "head", engine = "tcp://PEER", address = "10.0.0.1" },
  { name = "edge", engine = "tcp://PEER", address = "10.0.0.2", link = "50m" },
]
"""


@contextmanager
def absent(how: str) -> Iterator[str]:
    """An address at which connections are refused, accepted by the kernel and never answered, or all packets lost."""
    with ExitStack() as sockets:
        bound = sockets.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        if how == "silent":
            bound.listen()
        elif how == "lost":
            bound.listen(0)  # when this queue is full, further SYN packets are dropped
            for _ in range(4):
                filling = sockets.enter_context(socket.socket())
                filling.setblocking(False)
                filling.connect_ex(bound.getsockname())
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("how", ["refused", "silent", "lost"])
def test_a_line_names_the_peer(tmp_path: Path, how: str) -> None:
    cluster = tmp_path / "cluster.toml"
    commands = [
        ("status", "--dispatcher", "PEER"),
        ("cancel", "--dispatcher", "PEER"),
        ("train", *_DATA, "--dispatcher", "PEER", "--parameter-servers", "PEER"),
        ("train", *_DATA, "--store", "redis://PEER/0"),
        ("checkpoint", "list", "--store", "redis://PEER/0"),
        ("serve", "ps", "--store", "redis://PEER/0", "--listen", "127.0.0.1:0"),
        ("serve", "worker", *_WORKER, "--dispatcher", "PEER"),
        ("cluster", "up", "--file", str(cluster)),
    ]
    with absent(how) as peer, ExitStack() as running:
        cluster.write_text(_CLUSTER.replace("PEER", peer))
        outputs = [running.enter_context(told_by(command, peer)) for command in commands]
        for command, lines in zip(commands, outputs, strict=True):
            local = "--store" in command or command[0] == "serve"
            long = how != "refused" and not local  # they try for half a minute
            name = "no answer for 10 s" if long else peer
            assert any(name in line for line in lines), command


def test_packets_to_an_absent_peer_are_lost() -> None:
    with absent("lost") as peer, socket.socket() as client:
        client.settimeout(1.0)
        host, _, port = peer.partition(":")
        with pytest.raises(TimeoutError):
            client.connect((host, int(port)))


@contextmanager
def told_by(command: tuple[str, ...], peer: str) -> Iterator[IO[str]]:
    """The messages of a command that runs, which is killed at the end of the block."""
    arguments = [part.replace("PEER", peer) for part in command]
    process = subprocess.Popen(
        [sys.executable, "-m", "esd.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "300"},
    )
    with process:
        assert process.stderr is not None
        try:
            yield process.stderr
        finally:
            process.kill()
