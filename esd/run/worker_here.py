"""A run whose one worker is a part of this process, where a debugger finds it: `LocalCluster(workers=0)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from esd.worker.service.settings import WorkerSettings

_FAILING_SECONDS = 10.0  # from the failure of the job to the error of the worker, which says more

Submit = Callable[[Callable[[], None]], Future[None]]  # has a function called in another thread
T = TypeVar("T")


class Worker(Protocol):
    """A worker of this process (worker/here.py, which imports torch)."""

    def train(self) -> None:
        """Trains one job to its end, in the calling thread."""

    def close(self) -> None:
        """Leaves the job, from any thread."""


@dataclass(frozen=True, slots=True)
class Here:
    """The place of a worker in this process.

    Attributes:
        worker: makes the worker of these settings.
        submit: has a function called in the thread that is to train.
    """

    worker: Callable[[WorkerSettings], Worker]
    submit: Submit

    async def beside(self, work: Coroutine[Any, Any, T], settings: WorkerSettings) -> T:
        """Returns the result of `work`, while a worker trains the job that it drives.

        Raises:
            FailedPrecondition: the model's code fails; its own error is the cause.
        """
        driving = asyncio.create_task(work)
        training = asyncio.create_task(self._train(self.worker(settings)))
        try:
            await asyncio.wait({driving, training}, return_when=asyncio.FIRST_EXCEPTION)
            if driving.done() and driving.exception() is not None:
                await asyncio.wait({training}, timeout=_FAILING_SECONDS)
            if training.done():
                training.result()
            return await driving
        finally:
            for task in (driving, training):
                task.cancel()
            await asyncio.gather(driving, training, return_exceptions=True)

    async def _train(self, worker: Worker) -> None:
        working = self.submit(worker.train)
        try:
            await asyncio.shield(asyncio.wrap_future(working))
        except asyncio.CancelledError:
            if not working.cancel():
                await asyncio.to_thread(worker.close)
            raise
