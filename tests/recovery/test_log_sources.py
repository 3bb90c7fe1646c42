"""A run on a log of which a process is killed ends with the undisturbed model and position."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_brokers import BROKER, BROKERS, DISPATCHER, DRIVER, LogBroker
from tests.support.log_run import SAMPLES, LogRun, Strike, log_run
from tests.support.models import assert_same_model


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogBroker]:
    with BROKERS[request.param](tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def undisturbed(broker: LogBroker, tmp_path_factory: pytest.TempPathFactory) -> LogRun:
    return asyncio.run(log_run(broker, tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.parametrize("victim", [DRIVER, DISPATCHER, BROKER])
async def test_nothing_is_lost_and_nothing_is_trained_twice(
    victim: str, broker: LogBroker, undisturbed: LogRun, tmp_path: Path
) -> None:
    if victim not in broker.victims:
        pytest.skip("the mock broker of Kafka forgets its messages")
    run = await log_run(broker, tmp_path, Strike(victim, 38))
    assert run.result["samples"] == SAMPLES
    assert run.result["loss"] == undisturbed.result["loss"]
    assert run.position == undisturbed.position
    assert_same_model(run.model.parent, undisturbed.model.parent)
