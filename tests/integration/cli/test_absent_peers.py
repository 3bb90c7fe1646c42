"""No command waits for a peer that is not there without a line that names the peer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

import pytest

_LONGEST_SILENCE = 60.0  # seconds; the lines come within 13 s on a machine with little else to do

_DATA = ("--data", "synthetic:zipf?fields=2&keys=50&samples=600", "--batch", "3", "--dim", "4")
_WORKER = ("--name", "w0", "--link", "50m", "--cache-rows", "100", "--listen", "127.0.0.1:0", "--metrics-port", "")


@contextmanager
def absent(*, silent: bool) -> Iterator[str]:
    """An address at which connections are refused, or accepted by the kernel and never answered."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if silent:
            bound.listen()
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_line_names_the_peer_within_a_minute(*, silent: bool) -> None:
    commands = [
        ("status", "--dispatcher", "PEER"),
        ("cancel", "--dispatcher", "PEER"),
        ("train", *_DATA, "--dispatcher", "PEER", "--parameter-servers", "PEER"),
        ("checkpoint", "list", "--store", "redis://PEER/0"),
        ("serve", "ps", "--store", "redis://PEER/0", "--listen", "127.0.0.1:0"),
        ("serve", "worker", *_WORKER, "--dispatcher", "PEER"),
    ]
    begun = time.monotonic()
    with absent(silent=silent) as peer, ExitStack() as running:
        outputs = [running.enter_context(told_by(command, peer)) for command in commands]
        for command, lines in zip(commands, outputs, strict=True):
            long = silent and command[0] in ("status", "cancel", "train")  # gRPC alone would try for half a minute
            name = "waiting for the dispatcher" if long else peer
            assert any(name in line for line in lines), command
        assert time.monotonic() - begun < _LONGEST_SILENCE


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
