"""The worker process, which `python -m esd.worker` runs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys

import torch

from esd.services.runtime import logs
from esd.services.runtime.leavable_thread import LeavableThread
from esd.services.runtime.process import StopEvent, announce
from esd.services.runtime.settings import load
from esd.worker.service.epoch import Training
from esd.worker.service.session import WorkerSession
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.device import prepare_device
from esd.worker.training.trainer import model_of_job, train

_log = logging.getLogger(__name__)


async def serve_worker(stop: StopEvent) -> None:
    """Takes part in one job and describes itself meanwhile; ends early when `stop` is set."""
    settings = load(WorkerSettings)
    logs.configure(settings.log_level)
    logs.bind(worker=settings.name)
    if settings.code:
        sys.path.insert(0, settings.code)
    session = WorkerSession(settings, Training(model_of_job, torch.device(settings.device), may_rest=True))
    thread, context = LeavableThread("esd-train"), contextvars.copy_context()
    working = asyncio.wrap_future(thread.submit(context.run, take_part, session, settings))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        await working
    else:
        _log.warning("stopped before the end of the stream")
        # A closed session fails in its thread, which asyncio would log as an error that nothing has read.
        working.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.to_thread(session.close)  # the thread that trains is not waited for


def take_part(session: WorkerSession, settings: WorkerSettings) -> None:
    """Trains the job's own model to the end of the stream. Call it in a thread of its own.

    Raises:
        EsdError: the device is not there, a plan was refused, the model's code fails, or the job does.
    """
    prepare_device(settings.device, settings.threads)
    with session:
        announce("worker", session.server.address, session.server.metrics_address)
        for step in session:
            train(step)
