"""The process of an end of lanes, as `esd serve lanes` runs it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from esd.lanes.connection import BROKEN, Stream
from esd.lanes.ends import FarEnd, NearEnd
from esd.lanes.settings import LanesSettings
from esd.services.domain.errors import EsdError, FailedPrecondition
from esd.services.runtime import logs
from esd.services.runtime.congestion import congestion_control
from esd.services.runtime.http import address_of, serve_http
from esd.services.runtime.metrics_page import metrics_page
from esd.services.runtime.process import announce
from esd.services.runtime.settings import split_address

_MOST_CONNECTIONS = 2048  # open at a time at one end, each lane at a far end; further ones are closed

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedEnd:
    """The addresses of an end, each as `host:port`; None for a listener that is turned off."""

    address: str
    metrics_address: str | None


@asynccontextmanager
async def serve_lanes(settings: LanesSettings) -> AsyncIterator[ServedEnd]:
    """Serves an end of lanes while the block runs.

    Raises:
        InvalidArgument: the settings do not say which end it is.
        FailedPrecondition: a port is not available.
    """
    targets = settings.targets
    far, near = FarEnd(targets), NearEnd(settings.via, settings.lanes)
    attended = _Attended(far.attend if targets else near.attend)
    pages = {"/metrics": metrics_page(settings)}
    variable = settings.variable("metrics_port")
    try:
        server = await asyncio.start_server(attended.accept, *split_address(settings.listen), limit=Stream.LIMIT)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise FailedPrecondition(
            f"cannot listen on {settings.listen}: {reason}; choose another address with {settings.variable('listen')}"
        ) from error
    async with (
        server,
        congestion_control(settings.congestion),
        serve_http("metrics", settings.listen, settings.metrics_port, variable, pages) as page,
    ):
        try:
            yield ServedEnd(address_of(server.sockets[0], settings.listen), page)
        finally:
            server.close()
            await attended.end()


class _Attended:
    """The connections of an end."""

    def __init__(self, attend: Callable[[Stream], Awaitable[None]]) -> None:
        self._attend = attend
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes a connection."""
        if len(self._tasks) >= _MOST_CONNECTIONS:
            _log.warning("a connection is closed, since %d are open", len(self._tasks))
            writer.transport.abort()
            return
        task = asyncio.create_task(self._follow(Stream(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Ends all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, stream: Stream) -> None:
        peer = stream.writer.get_extra_info("peername")
        try:
            await self._attend(stream)
        except (EsdError, TimeoutError, *BROKEN) as error:
            _log.info("the connection of %s has ended: %s", peer, str(error) or "it was silent")
            await stream.close()
        except BaseException:
            await stream.abort()
            raise


async def run_lanes(settings: LanesSettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set."""
    logs.configure(settings.log_level)
    async with serve_lanes(settings) as served:
        announce("lanes", served.address, served.metrics_address)
        await stop.wait()
