"""The services of a local cluster as processes: how one is started, waited for and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esd.run.local_settings import without_settings
from esd.run.worker_host import Process, end_of
from esd.services.domain.errors import EsdError, FailedPrecondition, Unavailable
from esd.services.runtime.low_limits import low_limits
from esd.services.runtime.process import STOP_WITH_STDIN
from esd.services.runtime.settings import join_address

# For one service without rows to load, or the import of torch on a busy small machine; and from one progress of a
# service that loads rows to the next.
START_SECONDS = 120.0
STOP_SECONDS = 15.0


class ServiceFailed(EsdError):
    """A service process ended with an error."""


@dataclass(slots=True)
class ServiceProcess:
    """One running service.

    Attributes:
        name: for messages, such as `worker-2`.
        process: its process.
        log: the file that takes its standard error.
        start: makes a process of it, which listens where the one before did.
        address: `host:port` of its gRPC service.
        metrics: `host:port` of its metrics page, if it has one.
        page: `host:port` of the page for people, if it has one.
        restarts: how often it was started again, or was about to be.
    """

    name: str
    process: Process
    log: Path
    start: Callable[[], Coroutine[Any, Any, Process]]
    address: str = ""
    metrics: str | None = None
    page: str | None = None
    restarts: int = 0

    async def restart(self) -> None:
        """Starts a service that has died again, at its old address.

        Raises:
            ServiceFailed: it has died once more before it was ready.
            Unavailable: it is not ready in time.
        """
        starting = asyncio.create_task(self.start())
        try:
            self.process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.process = await starting  # for `stop`: a process that nobody knows would run on
            raise
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Reads the ready line. A service that gets on with loading may take any time.

        Raises:
            ServiceFailed: the process ends first.
            Unavailable: it is not ready in time.
        """
        seconds = START_SECONDS
        limit = f"within {seconds:.0f} s"
        progress, deadline = "", time.monotonic() + seconds
        while "address" not in (ready := await self._next_line(deadline - time.monotonic(), limit)):
            if ready["progress"] != progress:
                progress, deadline = ready["progress"], time.monotonic() + seconds
                limit = f"within {seconds:.0f} s of its last progress ({progress})"
        self.address = ready["address"]
        self.metrics = ready.get("metrics")
        self.page = ready.get("page")

    async def _next_line(self, seconds: float, limit: str) -> dict[str, str]:
        """Reads the next line of the process.

        Raises:
            ServiceFailed: the process ends first.
            Unavailable: the line does not come in time, which is in words the `limit`.
        """
        assert self.process.stdout is not None  # noqa: S101 - started with a pipe
        try:
            async with asyncio.timeout(seconds):
                line = await self.process.stdout.readline()
                if not line.endswith(b"\n"):  # nothing, or half of it
                    await self.process.wait()
                    raise self.failure()
        except TimeoutError:
            raise Unavailable(f"{self.name} was not ready {limit}; its log: {self.log}") from None
        said: dict[str, str] = json.loads(line)
        return said

    def failure(self) -> ServiceFailed:
        """Makes the error that tells the user about a process that ended on its own."""
        return ServiceFailed(
            f"{self.name} ended with exit code {self.process.returncode}{low_limits()}; end of {end_of(self.log)}"
        )

    async def stop(self) -> None:
        """Stops the process with SIGTERM, or with SIGKILL if it does not end in time."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()


Spawn = Callable[[Mapping[str, str], int], Coroutine[Any, Any, Process]]  # environment, standard error


def spawn_module(module: str, *arguments: str) -> Spawn:
    """Returns a function that starts `python -m MODULE ARGUMENT...`."""

    async def spawn(environment: Mapping[str, str], log: int) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, STOP_WITH_STDIN,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the command alone, which then stops the services in order
        )  # fmt: skip

    return spawn


@contextlib.contextmanager
def held_address() -> Iterator[str]:
    """Draws `host:port` of this machine for a service, and reserves the port until the block ends.

    Another program may take a port that a service drew itself, while the service is away, and then the service cannot
    come back. Linux lets a second socket listen at an address that the first socket has and does not listen at, and
    gives the port to no program that asks for any port. On other systems the port is drawn, and not reserved.
    """
    with _bound_socket() as held:
        host, port = held.getsockname()[:2]
        if sys.platform != "linux":
            held.close()
        yield join_address(host, port)


def _bound_socket() -> socket.socket:
    """Returns a socket at a free port of this machine: of 127.0.0.1, or of ::1 where IPv4 has no loopback address.

    Raises:
        FailedPrecondition: neither address can be used.
    """
    reasons = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            held = socket.socket(family)
        except OSError as error:
            reasons.append(f"{host}: {error.strerror}")
            continue
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, 0))
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(held.getsockname())  # sends nothing; fails where no packet would arrive
        except OSError as error:
            held.close()
            reasons.append(f"{host}: {error.strerror}")
            continue
        return held
    raise FailedPrecondition(
        f"a local run needs a loopback address, and no port can be had ({'; '.join(reasons)}); is the interface lo up?"
    )


async def start_service(name: str, spawn: Spawn, environment: Mapping[str, str], logs: Path) -> ServiceProcess:
    """Starts a service whose standard error goes to `logs`; it need not be ready when this returns.

    Args:
        name: of the service, and of its log.
        spawn: starts its process.
        environment: all its settings; it inherits the other variables of this process.
        logs: an existing directory.
    """
    log = logs / f"{name}.log"
    log.unlink(missing_ok=True)
    inherited = without_settings(os.environ)

    async def start() -> Process:
        with log.open("ab") as stderr:
            return await spawn({**inherited, **environment}, stderr.fileno())

    return ServiceProcess(name, await start(), log, start)


def processor_seconds(process: int) -> float:
    """Returns the processor time that a process and its threads have had, those that have ended, too.

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime((~process << 3) | 2)  # the process's clock on Linux: clock_getcpuclockid(3)
