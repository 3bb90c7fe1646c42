"""Runs on a log, each with a driver of its own process, of which one process may be killed on the way."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esd.data.logs import LogDataset
from esd.run.checkpoints import stored_jobs
from esd.run.cluster import LocalServices
from esd.run.options import TABLE
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.runtime.retry import AWAY
from tests.support.clicks import SCHEMA, SCHEMA_FILE, clicks
from tests.support.log_brokers import BROKER, DISPATCHER, LogBroker

ITERATIONS, BATCH, WORKERS = 60, 30, 2
SAMPLES = ITERATIONS * BATCH * WORKERS
_AHEAD = 600  # clicks that are in the stream before they are trained: the driver waits for more at its end
_POLL_SECONDS = 0.02
_LONGEST_RUN = 240.0  # seconds, on a busy machine; one that takes longer hangs


@dataclass(frozen=True, slots=True)
class Strike:
    """A kill, as soon as so many iterations are confirmed."""

    victim: str
    iteration: int


@dataclass(frozen=True, slots=True)
class LogRun:
    """A finished run.

    Attributes:
        result: its figures, as `esd train --json` prints them.
        model: the folder of its model.
        position: the position of the message that follows the trained ones, as it is in equal logs.
    """

    result: Mapping[str, Any]
    model: Path
    position: str


async def log_run(broker: LogBroker, place: Path, strike: Strike | None = None) -> LogRun:
    """Trains clicks that a producer adds meanwhile.

    Args:
        broker: where it adds them, to an empty log.
        place: an empty folder.
        strike: the kill on the way.

    Raises:
        TimeoutError: the run hangs.
        RuntimeError: a driver has failed that was not killed.
    """
    (place / "schema.toml").write_text(SCHEMA_FILE)
    await asyncio.to_thread(broker.empty)
    kept, address = place / "kept", broker.address
    async with (
        asyncio.timeout(_LONGEST_RUN),
        LocalServices(
            shards=1, worker_links=[2.5e6, 1.25e6], cache_rows=[600] * WORKERS, logs=place, checkpoint_dir=kept
        ) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        care: list[asyncio.Task[Any]] = [asyncio.create_task(cluster.supervisor.supervise(5))]
        command = [
            *("train", "--data", address, "--schema", str(place / "schema.toml"), "--workers", str(WORKERS)),
            *("--batch", str(BATCH), "--dim", "8", "--optimizer", "adam", "--lr", "0.002"),
            *("--iterations", str(ITERATIONS), "--checkpoint-every", "25", "--seed", "3", "--no-graphs"),
            *("--dispatcher", cluster.dispatcher.address, "--parameter-servers", cluster.parameter_servers[0].address),
            *("--table", TABLE, "--out", str(place / "out"), "--json"),
        ]
        there = min(SAMPLES, _AHEAD)
        await asyncio.to_thread(broker.add, clicks(SAMPLES + _AHEAD)[:there], 0)
        driver = await _started(command)
        try:
            if strike is not None:
                there = await _produce(client, broker, there, strike.iteration)
                driver = await _struck(strike.victim, driver, command, cluster, broker)
            care.append(asyncio.create_task(_produce(client, broker, there, ITERATIONS)))
            printed, told = await driver.communicate()
        finally:
            for task in care:
                task.cancel()
            with suppress(ProcessLookupError):
                driver.kill()
            await asyncio.gather(*care, driver.wait(), return_exceptions=True)
    if driver.returncode:
        raise RuntimeError(told.decode())
    result = json.loads(printed.decode().splitlines()[-1])
    return LogRun(result, place / "out" / "model", broker.place(_position(kept, address)))


async def _started(command: list[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.cli", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def _produce(client: AsyncDispatcherClient, broker: LogBroker, begin: int, until: int) -> int:
    """Adds clicks, some ahead of training, until so many iterations are confirmed. Returns their number."""
    rows, confirmed = clicks(SAMPLES + _AHEAD), 0
    while confirmed < until:
        with suppress(*AWAY):  # while a killed dispatcher is started again
            state = await client.describe()
            confirmed = confirmed if state is None else max(confirmed, state.iterations_confirmed)
        end = max(begin, min(len(rows), confirmed * BATCH * WORKERS + _AHEAD))
        await asyncio.to_thread(broker.add, rows[begin:end], begin)
        begin = end
        await asyncio.sleep(_POLL_SECONDS)
    return begin


async def _struck(
    victim: str,
    driver: asyncio.subprocess.Process,
    command: list[str],
    cluster: LocalServices,
    broker: LogBroker,
) -> asyncio.subprocess.Process:
    """Kills the victim and starts it again. Returns the process that drives the run from now on."""
    if victim == DISPATCHER:
        cluster.dispatcher.process.send_signal(signal.SIGKILL)  # its supervisor starts it again
    elif victim == BROKER:
        await asyncio.to_thread(broker.restart)
    else:
        driver.kill()
        await driver.communicate()
        return await _started(command)
    return driver


def _position(kept: Path, address: str) -> str:
    with stored_jobs(None, kept, None) as jobs:
        places = [manifest.place for job in jobs for manifest in job.manifests]
    assert places[-1] is not None
    return str(next(LogDataset(address, SCHEMA, 1).open(places[-1].parts[0].source)).source)
