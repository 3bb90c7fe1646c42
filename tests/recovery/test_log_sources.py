"""A run on a stream of a real Valkey of which a process is killed ends with the undisturbed model and position."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from esd.run.valkey import valkey_server
from testbed.redis_server import RedisServer, redis_server
from tests.support.log_run import SAMPLES, VICTIMS, LogRun, Strike, log_run
from tests.support.models import assert_same_model


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("broker"), program=valkey_server()) as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(broker: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> LogRun:
    return asyncio.run(log_run(broker, tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("victim", VICTIMS)
async def test_nothing_is_lost_and_nothing_is_trained_twice(
    victim: str, broker: RedisServer, undisturbed: LogRun, tmp_path: Path
) -> None:
    run = await log_run(broker, tmp_path, Strike(victim, 38))
    assert run.result["samples"] == SAMPLES
    assert run.result["loss"] == undisturbed.result["loss"]
    assert run.position == undisturbed.position
    assert_same_model(run.model.parent, undisturbed.model.parent)
