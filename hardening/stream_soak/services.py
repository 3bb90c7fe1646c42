"""The services under soak, each in its own process, with their misdeeds."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hardening.stream_soak import attend, exchange
from hardening.stream_soak.misdeed import Misdeed


@dataclass(frozen=True, slots=True)
class Soaked:
    """A service.

    Attributes:
        name: name in the table.
        module: the module for `python -m`.
        settings: environment variables.
        prepare: called with its address before the first misdeed.
        misdeeds: the misdeeds by name.
    """

    name: str
    module: str
    settings: Mapping[str, str]
    prepare: Callable[[str], Awaitable[None]]
    misdeeds: Mapping[str, Misdeed]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[str, int]]:
        """Runs the service while the block runs, and yields its address and its process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self.module, env={**os.environ, **self.settings}, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None  # noqa: S101 - started with a pipe
            address = json.loads(await process.stdout.readline())["address"]
            await self.prepare(address)
            yield address, process.pid
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


PARAMETER_SERVER = Soaked(
    "parameter server",
    "esd.ps_server",
    {"ESD_PS_STORE": "memory", "ESD_PS_METRICS_PORT": "none", "ESD_PS_LOG_LEVEL": "error"},
    exchange.prepare,
    exchange.MISDEEDS,
)
# Leases outlive the time between two misdeeds, so that the workers keep their places.
DISPATCHER = Soaked(
    "dispatcher",
    "esd.dispatcher",
    {
        "ESD_DISPATCHER_METRICS_PORT": "none",
        "ESD_DISPATCHER_LOG_LEVEL": "error",
        "ESD_DISPATCHER_LEASE_SECONDS": "600",
    },
    attend.prepare,
    attend.MISDEEDS,
)
SOAKED = (PARAMETER_SERVER, DISPATCHER)
