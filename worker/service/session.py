"""A worker's part in one job, as an iterator of steps for a thread that trains."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from esd.services.runtime.server import Server, serve
from esd.services.runtime.threads import name_this_thread
from esd.services.runtime.tracing import tracing
from esd.worker.service.caller import Caller
from esd.worker.service.epoch import Training
from esd.worker.service.job import WorkerJob
from esd.worker.service.servicer import SERVICE, WorkerService, add_to_server
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.step import Step

# A process that is started anew may train again after these errors, so they do not end the job.
_PASSING = (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)

T = TypeVar("T")


class WorkerSession:
    """Follows the plans of one job in a thread of its own: rows, checkpoints, sums, reports and heartbeats.

    Inside a `with` block, iteration yields the steps to train, over epochs and recoveries, until the sample stream has
    ended. One thread enters the block and iterates.

    Args:
        settings: of this worker.
        training: the model to train, and its device.

    Attributes:
        server: the worker's own gRPC service, inside the block.
    """

    server: Server

    def __init__(self, settings: WorkerSettings, training: Training) -> None:
        self._settings = settings
        self._training = training
        self._caller = Caller()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._services = AsyncExitStack()
        self._job: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        context = contextvars.copy_context()  # of the logs
        run = partial(context.run, _run, self._loop)
        self._thread = threading.Thread(target=run, name="esd-session", daemon=True)
        self._thread.start()
        try:
            self.server = self._await(self._open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failed = isinstance(error, Exception) and not isinstance(error, _PASSING) and self._caller.fail(error)
        if failed and self._thread is not None:
            self._await(self._ended())
        self.close()

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        """Returns the next step.

        Raises:
            EsdError: a plan was refused, the job failed, or it takes no checkpoints and another worker is lost.
        """
        step = self._caller.next_step()
        if step is None:
            raise StopIteration
        return step

    def close(self) -> None:
        """Leaves the job, if it is not over, and ends the iteration. Any thread may call it, and more than once."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        try:
            self._await(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    # --- in the session's thread -------------------------------------------------------------------------------------

    async def _open(self) -> Server:
        settings = self._settings
        service = WorkerService(settings)
        await self._services.enter_async_context(tracing("worker", settings.name))
        serving = serve("worker", [(add_to_server, service, SERVICE)], settings)
        server = await self._services.enter_async_context(serving)
        job = WorkerJob(settings, server.address, service, self._caller, self._training)
        self._job = asyncio.create_task(job.run(), name="worker_job")
        self._job.add_done_callback(self._over)
        await server.set_serving(True)
        return server

    def _over(self, job: asyncio.Task[None]) -> None:
        error = None if job.cancelled() else job.exception()
        self._caller.end(error if isinstance(error, Exception) else None)

    async def _ended(self) -> None:
        """Returns when the job has ended for this worker, in order or not; gives up after the retry timeout."""
        if self._job is not None:
            await asyncio.wait([self._job], timeout=self._settings.retry_timeout)

    async def _close(self) -> None:
        if self._job is not None:
            self._job.cancel()
            await self._ended()
        await self._services.aclose()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None  # noqa: S101 - the block is entered
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # such as Ctrl-C: the work must not go on alone
            future.cancel()
            raise


def _run(loop: asyncio.AbstractEventLoop) -> None:
    name_this_thread("esd-session")
    loop.run_forever()
