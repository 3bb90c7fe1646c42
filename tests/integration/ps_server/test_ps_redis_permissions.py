"""A user of Redis that lacks a permission: the error names the command and the permissions, and these suffice."""

from __future__ import annotations

import re

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import FailedPrecondition
from testbed.redis_server import RedisServer
from tests.support.frames import row_push
from tests.support.ps_client import Client


async def store_rows(redis: RedisServer, *permissions: str) -> int:
    """Stores rows as a user with these permissions; returns how many there are."""
    redis.cli("acl", "setuser", "clerk", "reset", "on", ">secret", *permissions)
    settings = ParameterServerSettings(
        store=f"redis://clerk:secret@{redis.address}/0", metrics_port=None, grace_seconds=0
    )
    async with parameter_server(settings) as server, Client(server.address) as client:
        await client.create_table()
        await client.send(row_push(np.arange(100), 4, 1.0))
        return int((await client.describe()).tables[0].rows)


@pytest.mark.parametrize(
    ("permissions", "refused"),
    [
        (("~*", "+@all", "-eval"), "the command eval"),
        (("~*", "+@all", "-hset"), "a command of our scripts"),
        (("~other:*", "+@all"), "our keys"),
    ],
)
async def test_what_is_not_permitted_is_named_with_the_permissions_that_suffice(
    own_redis: RedisServer, permissions: tuple[str, ...], refused: str
) -> None:
    with pytest.raises(FailedPrecondition, match=rf"does not permit {refused} to the user that the store") as caught:
        await store_rows(own_redis, *permissions)
    needed = re.search("`(.*)`", str(caught.value))
    assert needed is not None
    assert await store_rows(own_redis, *needed[1].split()) == 100
    assert "secret" not in str(caught.value)
