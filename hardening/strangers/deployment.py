"""Services with TLS and a token, as processes; every port that they listen at; the memory that they take."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import Certificates

WORKERS = 2
_LISTENING = "0A"  # in /proc/net/tcp
_STOP_SECONDS = 15.0
_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Service:
    """A running service.

    Attributes:
        name: such as `worker-0`.
        process: its process.
        ready: the fields of its ready line.
    """

    name: str
    process: asyncio.subprocess.Process
    ready: dict[str, str]

    @property
    def address(self) -> str:
        """`host:port` of its gRPC service."""
        return self.ready["address"]

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def ports(self) -> Iterator[tuple[str, str]]:
        """Yields every address at which it listens, and its protocol: `grpc`, `metrics`, `page` or `all-reduce`."""
        named = {address: what for what, address in self.ready.items()}
        files = [str(link.readlink()) for link in Path(f"/proc/{self.process.pid}/fd").iterdir()]
        sockets = {file[len("socket:[") : -1] for file in files if file.startswith("socket:[")}
        for line in (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines():
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in sockets:
                address = f"127.0.0.1:{int(fields[1].partition(':')[2], 16)}"
                what = named.get(address, "all-reduce")
                yield address, "grpc" if what == "address" else what


@asynccontextmanager
async def deployment(folder: Path, certificates: Certificates) -> AsyncIterator[dict[str, Service]]:
    """Runs a parameter server, a dispatcher and the workers, by name. All calls need the token, none a certificate."""
    services: dict[str, Service] = {}

    async def start(service: str, module: str, prefix: str, **settings: object) -> Service:
        secured = certificates.of("service", token=True) | settings
        with (folder / f"{service}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"esd.{module}",
                env=os.environ | {f"ESD_{prefix}_{key}".upper(): str(value) for key, value in secured.items()},
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )  # fmt: skip
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            ready = json.loads(await process.stdout.readline())
        except BaseException:
            process.kill()
            raise
        services[service] = Service(service, process, ready)
        return services[service]

    try:
        await start("ps", "ps_server", "PS", checkpoint_dir=folder / "kept")
        dispatcher = await start("dispatcher", "dispatcher", "DISPATCHER", page_port=0)
        await asyncio.gather(
            *(
                start(f"worker-{slot}", "worker", "WORKER", name=f"worker-{slot}", dispatcher=dispatcher.address,
                      link=1e9, cache_rows=1000)
                for slot in range(WORKERS)
            )
        )  # fmt: skip
        yield services
    finally:
        for service in services.values():
            if service.process.returncode is None:
                service.process.terminate()
        for service in services.values():
            try:
                await asyncio.wait_for(service.process.wait(), _STOP_SECONDS)
            except TimeoutError:
                service.process.kill()
                await service.process.wait()


async def most_memory(services: dict[str, Service], most: dict[str, float]) -> None:
    """Keeps the largest memory of each service that is seen, in MB, until it is cancelled."""
    while True:
        for name, service in services.items():
            if service.process.returncode is None:
                most[name] = max(most.get(name, 0.0), service.megabytes)
        await asyncio.sleep(_SAMPLE_SECONDS)
