"""Faults of exchanges, over and over: frames and streams of rows, which a parameter server must survive."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import numpy as np

from esd.services.domain.errors import DeadlineExceeded, Unavailable
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.runtime.channel import channel
from esd.services.runtime.retry import repeated
from esd.services.wire.frames import encode_parcel
from hardening.stream_soak.misdeed import AT_ONCE, Misdeed
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.server_client import ServerClient

SPEC = TableSpec("soak", 64, OptimizerSpec(), seed=0, init_scale=0.01)
_EXCHANGE = "/esd.v1.ParameterServer/Exchange"
_ROWS = 32
_FRAMES = 64  # of one stream
_LATE_SECONDS = 2.0  # for a version that never comes
_PATIENT_SECONDS = 30.0

_IDS = np.arange(_ROWS, dtype=np.uint64)
_NEVER = np.full(_ROWS, 1 << 20)


async def _pull(client: ServerClient) -> None:
    """Asks for rows at a version that they will never have."""
    await client.pull(_IDS, _NEVER, np.empty((_ROWS, SPEC.row_width), np.float32), np.arange(_ROWS))


async def prepare(address: str) -> None:
    """Makes the table that all frames are about."""
    async with ServerClient(address, SPEC) as client:
        await client.create_table()


async def time_out(address: str) -> None:
    """Many frames of one stream that are refused when their time is up."""
    async with ServerClient(address, SPEC, timeout=_LATE_SECONDS) as client:
        # On a machine that stands still meanwhile, the client gives up before it has read the refusals, and asks again.
        pulls = (repeated(lambda: _pull(client), _PATIENT_SECONDS) for _ in range(_FRAMES))
        ends = await asyncio.gather(*pulls, return_exceptions=True)
        assert all(isinstance(end, DeadlineExceeded) for end in ends), ends  # noqa: S101


async def give_up(address: str) -> None:
    """Many frames of one stream that are cancelled before their answer."""
    async with ServerClient(address, SPEC, timeout=_PATIENT_SECONDS) as client:
        pulls = [asyncio.create_task(_pull(client)) for _ in range(_FRAMES)]
        await client.describe()  # some are on their way by now
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)


async def close(address: str) -> None:
    """Streams that their clients close while frames are unanswered."""

    async def one() -> None:
        async with ServerClient(address, SPEC, timeout=_PATIENT_SECONDS) as client:
            pull = asyncio.create_task(_pull(client))
            await client.describe()
        with suppress(Unavailable):
            await pull

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


async def cancel(address: str) -> None:
    """Streams that are cancelled as soon as a frame of theirs is on its way."""
    frame = encode_parcel(
        Parcel(pulls=Pulls(_IDS, _NEVER, np.arange(_ROWS))), SPEC, 1, epoch=0, wait_seconds=_PATIENT_SECONDS
    )
    opened = channel(address)
    try:
        for _ in range(AT_ONCE):
            call: Any = opened.stream_stream(_EXCHANGE)()  # type: ignore[call-arg]  # wrong in the stubs only
            await call.write(frame.data)
            await call.read()  # the credit
            call.cancel()
    finally:
        await opened.close(None)


async def lose(address: str) -> None:
    """Connections that are reset while frames are unanswered; the client opens others until its patience ends."""
    async with CuttableProxy.running(address) as proxy:
        clients = [ServerClient(proxy.address, SPEC, timeout=_PATIENT_SECONDS) for _ in range(AT_ONCE)]
        pulls = [asyncio.create_task(_pull(client)) for client in clients]
        await asyncio.gather(*(client.describe() for client in clients))
        proxy.cut()
        ends = await asyncio.gather(*pulls, return_exceptions=True)
        assert all(isinstance(end, Unavailable) for end in ends), ends  # noqa: S101
        for client in clients:
            await client.close()


MISDEEDS: dict[str, Misdeed] = {
    "frames time out": Misdeed(time_out, _FRAMES),
    "frames are given up": Misdeed(give_up, _FRAMES),
    "streams are closed": Misdeed(close, AT_ONCE),
    "streams are cancelled": Misdeed(cancel, AT_ONCE),
    "connections are lost": Misdeed(lose, AT_ONCE),
}
