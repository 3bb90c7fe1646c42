"""A run on a log without an end is judged by windows of it, is stopped, and goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from esd.run.cluster import LocalServices
from esd.run.options import TABLE
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.state import JobState
from tests.support.clicks import SCHEMA_FILE, clicks
from tests.support.log_brokers import BROKERS
from tests.support.simple_clients import state_when

EVERY, BATCH, WORKERS = 4, 20, 2
WINDOW = "?from=1700000000000-0&until=1700000000200-0"  # the first 200 clicks
FIRST, MORE = 24, 48  # iterations that the clicks are enough for, before the run is stopped and afterwards


async def started(cluster: LocalServices, address: str, schema: Path) -> Process:
    command = [
        *("train", "--data", address, "--evaluate", f"{address}{WINDOW}", "--evaluate-every", str(EVERY)),
        *("--schema", str(schema), "--workers", str(WORKERS), "--batch", str(BATCH), "--dim", "8", "--no-graphs"),
        *("--dispatcher", cluster.dispatcher.address, "--parameter-servers", cluster.parameter_servers[0].address),
        *("--table", TABLE, "--json"),
    ]
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "esd.cli", *command, stdout=PIPE, stderr=PIPE)


async def stopped(driver: Process) -> str:
    """Ends a driver as Ctrl-C does; returns its words."""
    driver.send_signal(signal.SIGINT)
    _, told = await driver.communicate()
    assert driver.returncode == 128 + signal.SIGINT, told.decode()
    return told.decode()


def judged(state: JobState) -> list[int]:
    return [each.iteration for each in state.evaluations]


async def test_windows_of_an_endless_log_judge_its_run_until_it_is_stopped_and_afterwards(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA_FILE)
    (tmp_path / "broker").mkdir()
    rows = clicks(MORE * BATCH * WORKERS)
    until = FIRST * BATCH * WORKERS
    with BROKERS["valkey"](tmp_path / "broker") as broker:
        broker.add(rows[:until], 0)
        async with (
            asyncio.timeout(240),
            LocalServices(
                shards=1,
                worker_links=[2.5e6] * WORKERS,
                cache_rows=[600] * WORKERS,
                logs=tmp_path,
                checkpoint_dir=tmp_path / "kept",
            ) as cluster,
            AsyncDispatcherClient(cluster.dispatcher.address) as client,
        ):
            care = asyncio.create_task(cluster.supervisor.supervise(5))
            driver = await started(cluster, broker.address, tmp_path / "schema.toml")
            try:
                state = await state_when(client, lambda now: len(now.evaluations) >= 3, 200)
                assert judged(state)[:3] == [EVERY, 2 * EVERY, 3 * EVERY]
                assert "checkpoint" in await stopped(driver)
                broker.add(rows[until:], until)
                driver = await started(cluster, broker.address, tmp_path / "schema.toml")
                state = await state_when(client, lambda now: len(now.evaluations) >= 7, 80)
                assert judged(state)[:7] == [*range(EVERY, 7 * EVERY + 1, EVERY)]
                await stopped(driver)
            finally:
                care.cancel()
                if driver.returncode is None:
                    driver.kill()
                    await driver.wait()
