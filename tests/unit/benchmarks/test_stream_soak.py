"""Every misdeed of the soak of streams is one that a parameter server gets over: nothing waits there afterwards."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.ps import running_server
from benchmarks.stream_soak import MISDEEDS, SPEC
from services.clients.parameter_server import AsyncParameterServerClient


@pytest.mark.parametrize("name", MISDEEDS)
async def test_a_misdeed_leaves_nothing_behind(name: str) -> None:
    async with (
        running_server({"ESD_PS_STORE": "memory"}) as (address, _),
        AsyncParameterServerClient(address, SPEC) as client,
        asyncio.timeout(60),
    ):
        await client.create_table()
        await MISDEEDS[name][0](address)
        while (await client.describe()).tables[0].waiting_pulls:
            pass
