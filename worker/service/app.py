"""The worker process: what `python -m esd.worker` runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

from esd.services.runtime import logs
from esd.services.runtime.process import StopEvent, announce
from esd.services.runtime.server import serve
from esd.services.runtime.settings import load
from esd.worker.service.job import WorkerJob
from esd.worker.service.servicer import SERVICE, WorkerService, add_to_server
from esd.worker.service.settings import WorkerSettings

_log = logging.getLogger(__name__)


async def serve_worker(stop: StopEvent) -> None:
    """Takes part in one job and describes itself meanwhile; ends early when `stop` is set."""
    settings = load(WorkerSettings)
    logs.configure(settings.log_level)
    logs.bind(worker=settings.name)
    if settings.code:
        sys.path.insert(0, settings.code)
    service = WorkerService(settings)
    async with serve("worker", [(add_to_server, service, SERVICE)], settings) as server:
        job = asyncio.create_task(WorkerJob(settings, server.address, service).run())
        await server.set_serving(True)
        announce("worker", server.address, server.metrics_address)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((job, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not job.done():
            _log.warning("stopped before the end of the stream")
            job.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await job
