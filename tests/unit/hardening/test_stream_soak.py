"""Every misdeed of the soak of streams is one that its service gets over: nothing waits there afterwards."""

from __future__ import annotations

import asyncio

from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.state import JobPhase
from hardening.stream_soak.exchange import SPEC
from hardening.stream_soak.services import DISPATCHER, PARAMETER_SERVER
from tests.support.server_client import ServerClient


async def test_misdeeds_leave_nothing_behind_at_a_parameter_server() -> None:
    async with (
        asyncio.timeout(110),
        PARAMETER_SERVER.running() as (address, _),
        ServerClient(address, SPEC) as client,
    ):
        for misdeed in PARAMETER_SERVER.misdeeds.values():
            await misdeed.commit(address)
            while (await client.describe()).tables[0].waiting_pulls:
                pass


async def test_misdeeds_leave_the_job_of_a_dispatcher_alone() -> None:
    async with asyncio.timeout(110), DISPATCHER.running() as (address, _), AsyncDispatcherClient(address) as client:
        for misdeed in DISPATCHER.misdeeds.values():
            await misdeed.commit(address)
            state = await client.describe()
            assert (state.phase, state.epoch) == (JobPhase.RUNNING, 0)
