"""A Redis with impossible answers gives a named error, and no write that is not stored is acknowledged."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from hardening.fuzz.lying_redis import LyingRedis, live_with
from testbed.redis_server import redis_server


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_lie_is_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    rng = random.Random(seed)
    with redis_server(tmp_path) as redis, caplog.at_level(logging.ERROR):
        liar = LyingRedis(rng, redis.port)
        async with liar.serving() as url:
            settings = ParameterServerSettings(store=url, store_timeout_seconds=0.5, metrics_port=None, grace_seconds=0)
            async with parameter_server(settings) as server:
                life = await live_with(liar, server.address, rng, calls=200, share=0.05)
    assert liar.told > 50
    assert life.answers["OK"] > 50
    assert life.answers["Unavailable"] > 10
    assert not [record for record in caplog.records if "internal error" in record.message]
