"""The dispatcher's client for programs without an event loop: DispatcherClient, run in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dispatcher.client import DispatcherClient
from dispatcher.core.hybrid import HybridResult
from services.domain.batches import SampleBatch
from services.domain.jobs import Criterion, JobSpec
from services.domain.plans import PlanMessage
from services.domain.reports import Lease, Registration, Report
from services.domain.state import JobState
from services.runtime.security import PLAINTEXT, Credentials
from services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES

T = TypeVar("T")


class SyncDispatcherClient:
    """Calls one dispatcher; every method blocks until its answer is there.

        with SyncDispatcherClient("127.0.0.1:50051") as dispatcher:
            state = dispatcher.describe()

    Arguments, results and errors are those of DispatcherClient, which does the work. May be used by several threads.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 30.0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        credentials: Credentials = PLAINTEXT,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="esd-dispatcher-client", daemon=True)
        self._thread.start()

        async def connect() -> DispatcherClient:
            return DispatcherClient(
                address, timeout=timeout, max_message_bytes=max_message_bytes, credentials=credentials
            )

        self._client = self._run(connect())  # a channel belongs to the loop that it is made in

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection and ends open streams. The client cannot be used any more."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hybrid_dis(
        self,
        costs: NDArray[np.float32] | NDArray[np.int32],
        capacities: NDArray[np.int32],
        *,
        alpha: float = 1.0,
        criterion: Criterion = Criterion.MIN2_MIN,
        solver: str = "auto",
    ) -> HybridResult:
        """Assigns k samples to n workers."""
        return self._run(self._client.hybrid_dis(costs, capacities, alpha=alpha, criterion=criterion, solver=solver))

    def create_job(self, job: JobSpec) -> bool:
        """Opens a job; False if exactly this one is open already."""
        return self._run(self._client.create_job(job))

    def register(self, registration: Registration) -> Lease:
        """Takes a worker slot."""
        return self._run(self._client.register(registration))

    def heartbeat(self, lease_id: str) -> None:
        """Keeps a lease alive."""
        self._run(self._client.heartbeat(lease_id))

    def report(self, lease_id: str, report: Report) -> None:
        """Confirms an iteration or the flush."""
        self._run(self._client.report(lease_id, report))

    def describe(self) -> JobState | None:
        """The state of the running or last job; None if there was none."""
        return self._run(self._client.describe())

    def submit(self, job: str, batches: Iterable[SampleBatch]) -> int:
        """Sends the sample stream of a job and ends it. Returns the samples that the job has taken in."""
        return self._run(self._client.submit(job, _in_threads(iter(batches))))

    def feed(self, job: str, stream_from: Callable[[int], Iterable[SampleBatch]]) -> int:
        """As `submit`, for a stream that can be read from any sample on."""
        return self._run(self._client.feed(job, lambda taken: _in_threads(iter(stream_from(taken)))))

    def watch_plans(self, lease_id: str, from_iteration: int = 0, *, patience: float = 30.0) -> Iterator[PlanMessage]:
        """Yields the membership, one plan per iteration, the flush plan and the end of the stream, each once."""
        messages = self._client.watch_plans(lease_id, from_iteration, patience=patience)
        try:
            while (message := self._run(_next(messages))) is not None:
                yield message
        finally:
            self._run(messages.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # such as Ctrl-C: the call must not go on alone
            future.cancel()
            raise


async def _next(messages: AsyncIterator[T]) -> T | None:
    return await anext(messages, None)


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    """Draws from a blocking iterator without blocking the event loop."""
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item
