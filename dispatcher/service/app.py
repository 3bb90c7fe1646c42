"""The dispatcher process, as `python -m esd.dispatcher` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from esd.dispatcher.service.hybrid_calls import HybridCalls
from esd.dispatcher.service.page.serving import serve_page
from esd.dispatcher.service.run.current_job import CurrentJob
from esd.dispatcher.service.run.watch import Observers
from esd.dispatcher.service.servicer import SERVICE, DispatcherServicer, add_to_server
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.runtime import logs
from esd.services.runtime.process import announce
from esd.services.runtime.server import serve
from esd.services.runtime.threads import named_threads
from esd.services.runtime.tracing import tracing


@dataclass(frozen=True, slots=True)
class ServedDispatcher:
    """The addresses of a running dispatcher, each as `host:port`; None for a listener that is turned off."""

    address: str
    metrics_address: str | None
    page_address: str | None


@asynccontextmanager
async def serve_dispatcher(settings: DispatcherSettings) -> AsyncIterator[ServedDispatcher]:
    """Serves a dispatcher, and its page, while the block runs."""
    current_job = CurrentJob(settings)
    solvers = named_threads("esd-solver", settings.solver_threads)
    observing = named_threads("esd-observers")
    servicer = DispatcherServicer(current_job, solvers, HybridCalls(settings), Observers(observing))
    try:
        async with (
            serve("dispatcher", [(add_to_server, servicer, SERVICE)], settings) as server,
            serve_page(current_job, settings) as page,
        ):
            await server.set_serving(True)
            yield ServedDispatcher(server.address, server.metrics_address, page)
            await server.set_serving(False)
            await current_job.close()  # ends the open streams, for which the server's stop would wait otherwise
    finally:
        for threads in (solvers, observing):
            threads.shutdown(wait=False, cancel_futures=True)


async def run_dispatcher(settings: DispatcherSettings, stop: asyncio.Event) -> None:
    """Serves until `stop` is set."""
    logs.configure(settings.log_level)
    async with tracing("dispatcher", settings.listen), serve_dispatcher(settings) as served:
        announce("dispatcher", served.address, served.metrics_address, page=served.page_address)
        await stop.wait()
