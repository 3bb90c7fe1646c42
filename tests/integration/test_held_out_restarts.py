"""Early stopping survives its driver, and the dispatcher: the run ends where it would have ended undisturbed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from tests.support import training
from tests.support.simple_clients import state_when

EVERY, PATIENCE = 4, 5
OPTIONS = RunOptions(  # at a rate of nothing no evaluation is better than the first
    data="synthetic:criteo?samples=3000", holdout="0.2", workers=2, links="1g", batch=16, dim=8, cache_rows=1500,
    epochs=50, learning_rate=1e-30, evaluate_every=EVERY, early_stop=f"auc:{PATIENCE}", seed=3,
)  # fmt: skip
STOPS_AT = EVERY * (PATIENCE + 1)
ENDS_AT = STOPS_AT - EVERY + 2 * EVERY + OPTIONS.horizon


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    result = training.run(OPTIONS, store="memory", shards=1, out=None)
    assert [each["iteration"] for each in result["evaluations"]] == [*range(EVERY, STOPS_AT + 1, EVERY), ENDS_AT]
    assert result["iterations"] == ENDS_AT
    return result


async def start_driver(cluster: LocalServices) -> Process:
    """Starts `esd train` as OPTIONS say, as a process that can be killed."""
    servers = ",".join(server.address for server in cluster.parameter_servers)
    said = {
        "data": OPTIONS.data, "holdout": OPTIONS.holdout, "workers": OPTIONS.workers, "batch": OPTIONS.batch,
        "dim": OPTIONS.dim, "epochs": OPTIONS.epochs, "lr": OPTIONS.learning_rate, "evaluate-every": EVERY,
        "early-stop": OPTIONS.early_stop, "seed": OPTIONS.seed, "dispatcher": cluster.dispatcher.address,
        "parameter-servers": servers, "table": "kept", "checkpoints-kept": 40,  # the next driver may be slow to come
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in said.items()]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esd.cli", "train", *arguments, "--json", stdout=PIPE
    )


@pytest.mark.parametrize("victims", [("driver",), ("driver", "dispatcher")], ids=" and ".join)
async def test_patience_survives(victims: tuple[str, ...], undisturbed: dict[str, Any], tmp_path: Path) -> None:
    async with LocalServices(
        shards=1, store="memory", worker_links=OPTIONS.bandwidths(), cache_rows=[1500] * 2, logs=tmp_path
    ) as cluster:
        supervisor = asyncio.create_task(cluster.supervisor.supervise(5))
        try:
            async with asyncio.timeout(240), AsyncDispatcherClient(cluster.dispatcher.address) as client:
                driver = await start_driver(cluster)
                state = await state_when(client, lambda now: len(now.evaluations) >= 2 and now.checkpoint > EVERY, 240)
                driver.kill()
                if "dispatcher" in victims:
                    cluster.dispatcher.process.send_signal(signal.SIGKILL)
                await driver.wait()
                assert len(state.evaluations) < PATIENCE, "the driver was done before it was killed"
                driver = await start_driver(cluster)
                printed, _ = await driver.communicate()
        finally:
            supervisor.cancel()
    assert driver.returncode == 0
    result = json.loads(printed)
    assert result["iterations"] == ENDS_AT
    assert _figures(result) == _figures(undisturbed)


def _figures(result: dict[str, Any]) -> list[tuple[int, float]]:
    return [(each["iteration"], round(each["auc"], 9)) for each in result["evaluations"]]
