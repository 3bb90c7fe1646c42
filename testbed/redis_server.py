"""Real Redis and Valkey servers on free ports, each with its own directory, stopped at the end of a block."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from testbed.free_port import free_port

READY = "Ready to accept connections"


def await_ready(process: subprocess.Popen[str]) -> None:
    """Returns when a server takes connections.

    Raises:
        RuntimeError: The server ended before; the message holds its output.
    """
    output = ""
    assert process.stdout is not None
    for line in process.stdout:
        output += line
        if READY in line:
            return
    process.wait()
    raise RuntimeError(f"the server did not start:\n{output}")


@dataclass
class RedisServer:
    """One redis-server process. It acknowledges a write when the write is on disk, so that `kill` loses none.

    Attributes:
        directory: Where the server keeps its data.
        options: More options of its command line.
        port: Its port, the same one after each start.
        cli_options: Options of redis-cli, such as for TLS.
        process: The running process, None before `start` and after `kill`.
        program: The program: a `redis-server`, or a `valkey-server` that is used like it.
    """

    directory: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    cli_options: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    program: str = "redis-server"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL for `--store`."""
        return f"redis://{self.address}/0"

    def start(self) -> None:
        """Starts the server on its port, with its earlier data if it has any, and returns when it answers."""
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen([*command, *durable, *self.options], stdout=subprocess.PIPE, text=True)
        await_ready(self.process)
        self.cli("config", "set", "loglevel", "warning")  # from here on, the pipe has no reader

    def kill(self) -> None:
        """Kills the server at once, as `kill -9` does."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def empty(self) -> None:
        """Deletes all keys, without a process of redis-cli, because many tests begin with it."""
        with redis.Redis(port=self.port) as client:
            client.flushall()

    def cli(self, *command: str) -> str:
        """Runs one command in redis-cli and returns its output."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *self.cli_options, *command],
            check=True,
            capture_output=True,
            text=True,
            timeout=110,
        )
        return done.stdout


@contextlib.contextmanager
def redis_server(directory: Path, *options: str, program: str = "redis-server") -> Iterator[RedisServer]:
    """A running server, killed at the end of the block."""
    server = RedisServer(directory, options, program=program)
    try:
        server.start()
        yield server
    finally:
        server.kill()
