"""Faults of workers' streams, over and over, which a dispatcher must survive.

The workers belong to a job without samples, whose epoch begins when all of them attend. Each gets its membership, and
then waits for a plan that never comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from esd.services.clients.attendance import Attendance
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import StaleEpoch
from esd.services.domain.plans import Membership
from esd.services.domain.reports import FailureReport, FlushReport, Lease, TransferCounts
from esd.services.runtime.channel import channel
from esd.services.wire.attend import encode_attendance
from hardening.stream_soak.misdeed import AT_ONCE, Misdeed
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.simple_clients import job_with, registration

_ATTEND = "/esd.v1.Dispatcher/Attend"
_REPORTS = 64  # of one stream
_OTHER_EPOCH = 1_000
_JOB = job_with(workers=AT_ONCE, batch_size=4 * AT_ONCE)


async def prepare(address: str) -> None:
    """Opens the job."""
    async with AsyncDispatcherClient(address) as client:
        await client.create_job(_JOB)


async def close(address: str) -> None:
    """Streams that their workers close while they wait for plans."""
    async with _attending(address):
        pass


async def refuse(address: str) -> None:
    """Many reports of an epoch that is not theirs."""
    async with _attending(address) as attendances:
        refused = [attendances[0].report(FlushReport(0, TransferCounts(), _OTHER_EPOCH)) for _ in range(_REPORTS)]
        ends = await asyncio.gather(*refused, return_exceptions=True)
        assert all(isinstance(end, StaleEpoch) for end in ends), ends  # noqa: S101


async def cancel(address: str) -> None:
    """Streams that are cancelled as soon as they stand."""
    async with AsyncDispatcherClient(address) as client:
        leases = await _leases(client)
    opened = channel(address)
    try:
        calls: list[Any] = [opened.stream_stream(_ATTEND)() for _ in leases]  # type: ignore[call-arg]
        for call, lease in zip(calls, leases, strict=True):
            await call.write(encode_attendance(lease, 0, 0))
        for call in calls:
            await call.read()  # the membership
            call.cancel()
    finally:
        await opened.close(None)


async def lose(address: str) -> None:
    """Connections that are reset; their streams are opened again and go on, until their workers close them."""
    async with CuttableProxy.running(address) as proxy, _attending(proxy.address) as attendances:
        proxy.cut()
        # Reports of another epoch have no effect; the answer shows that the stream works again.
        await asyncio.gather(*(each.report(FailureReport("gone", _OTHER_EPOCH)) for each in attendances))


@asynccontextmanager
async def _attending(address: str) -> AsyncIterator[Sequence[Attendance]]:
    """Yields the streams of all workers, which know their membership by then."""
    async with AsyncDispatcherClient(address) as client, AsyncExitStack() as streams:
        attendances = [await streams.enter_async_context(client.attend_here(lease)) for lease in await _leases(client)]
        for attendance in attendances:
            assert isinstance(await anext(attendance), Membership)  # noqa: S101
        yield attendances


async def _leases(client: AsyncDispatcherClient) -> list[Lease]:
    """Registers all workers; those that have a place get it again."""
    return [await client.register(registration(f"edge-{number}")) for number in range(AT_ONCE)]


MISDEEDS: dict[str, Misdeed] = {
    "workers' streams are closed": Misdeed(close, AT_ONCE),
    "workers' streams are cancelled": Misdeed(cancel, AT_ONCE),
    "workers' connections are lost": Misdeed(lose, AT_ONCE),
    "reports are refused": Misdeed(refuse, _REPORTS),
}
