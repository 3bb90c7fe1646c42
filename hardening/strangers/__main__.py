"""Attacks every port of a job that trains, without credentials: `python -m hardening.strangers`.

The services have TLS and a token. One port after the other gets 1,024 connections, and up to 100 MB/s of junk where
its kind of attack sends any. The job must train on through all of it and end with every sample trained once, and no
process may take more than 200 MB more than before the first attack.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.stream import training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.state import JobState
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from hardening.strangers.deployment import WORKERS, Service, deployment, most_memory
from tests.support.certificates import Certificates

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=4&keys=5000", workers=WORKERS, links="1g", batch=16, dim=8, cache_rows=1000,
    seed=1, checkpoint_every=100, iterations=1_000_000,
)  # fmt: skip
KINDS = {
    "grpc": ("silent", "noise", "tls", "calls", "health"),
    "metrics": ("silent", "noise", "http"),
    "page": ("silent", "noise", "http"),
    "all-reduce": ("silent", "noise"),
}
MOST_MEGABYTES = 200.0  # that a process may take more
_WARM_UP_ITERATIONS = 100
_REST_SECONDS = 1.0  # between two attacks, for connections to close


@dataclass
class Stream:
    """Samples without end, until the attacks are over."""

    over: threading.Event
    samples: int = 0

    def __iter__(self) -> Iterator[SampleBatch]:
        self.samples = 0
        for batch in training_stream(OPTIONS):
            if self.over.is_set():
                return
            self.samples += len(batch)
            yield batch


async def attacked(
    services: dict[str, Service], state: list[JobState], authority: Path, seconds: float, table: Table
) -> bool:
    """Attacks every port in every way. Whether no process took too much and all live."""
    good = True
    before = {name: each.megabytes for name, each in services.items()}
    for service in services.values():
        for address, what in sorted(service.ports()):
            for kind in KINDS[what]:
                iterations, recoveries = state[-1].iterations_confirmed, len(state[-1].recoveries)
                most: dict[str, float] = {}
                watching = asyncio.create_task(most_memory(services, most))
                command = ("-m", "hardening.strangers.attack", address, kind, str(seconds), str(authority))
                process = await asyncio.create_subprocess_exec(
                    sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
                )
                out, _ = await process.communicate()
                done = json.loads(out) if out else {"connections": 0, "megabytes": 0.0}
                await asyncio.sleep(_REST_SECONDS)
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
                more, whose = max((most[name] - before[name], name) for name in services)
                good &= more <= MOST_MEGABYTES and all(each.process.returncode is None for each in services.values())
                row = (
                    f"{service.name} {what}", kind, str(done["connections"]), f"{done['megabytes'] / seconds:.0f}",
                    f"{more:.0f} ({whose})", str(state[-1].iterations_confirmed - iterations),
                    str(len(state[-1].recoveries) - recoveries),
                )  # fmt: skip
                table.add_row(*row)
                Console(stderr=True, width=160).print(" | ".join(row), highlight=False)
    return good


async def campaign(folder: Path, seconds: float, table: Table) -> bool:
    """Trains and attacks; whether all went as it should."""
    certificates = Certificates.make(folder / "certs", "service", "client")
    user = Credentials.read(ClientSettings(**certificates.of("client", token=True)))
    stream = Stream(threading.Event())
    states: list[JobState] = []
    dataset = training_stream(OPTIONS).dataset
    async with (
        deployment(folder, certificates) as services,
        AsyncDispatcherClient(services["dispatcher"].address, credentials=user) as client,
    ):
        job = OPTIONS.job(
            features=dataset.features,
            dense_features=dataset.dense_features,
            parameter_servers=(services["ps"].address,),
            stream=dataset.fingerprint,
        )
        driving = asyncio.create_task(drive(client, job, stream, on_progress(states.append)))
        try:
            while not driving.done() and (  # noqa: ASYNC110 - no event reports it
                not states or states[-1].iterations_confirmed < _WARM_UP_ITERATIONS
            ):
                await asyncio.sleep(0.1)
            attacking = asyncio.create_task(attacked(services, states, certificates.authority, seconds, table))
            await asyncio.wait({driving, attacking}, return_when=asyncio.FIRST_COMPLETED)
            stream.over.set()
            good = attacking.done() and attacking.result()
            final = await driving
            attacking.cancel()
            await export_model(job, folder / "model", user, graphs=False)
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
    return good and final.samples_submitted == stream.samples


def main() -> None:
    """Prints a table; the exit code tells whether the job has ended well and no process has taken too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    arguments = parser.parse_args()
    table = Table(
        "port", "attack", "connections", "MB/s", "memory, MB more", "iterations", "recoveries", show_edge=False
    )
    with tempfile.TemporaryDirectory(prefix="esd-strangers-") as folder:
        good = asyncio.run(campaign(Path(folder), arguments.seconds, table))
    Console(width=160).print(table)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
