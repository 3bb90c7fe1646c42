"""The threads that work on the store, so that the event loop never blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from services.runtime import metrics

P = ParamSpec("P")
T = TypeVar("T")


class StorePool:
    """A bounded pool of named threads. Calls beyond the threads queue; concurrent RPCs bound the queue."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ps-store")

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a thread, measured as a read."""
        return await self._run("read", lambda: work(*args, **kwargs))

    async def write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a thread, measured as a write. It goes on when the caller is cancelled."""
        return await self._run("write", lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Waits for running work; queued work is dropped."""
        self._executor.shutdown(cancel_futures=True)

    async def _run(self, operation: str, work: Callable[[], T]) -> T:
        with metrics.STORE_CALLS.track_inprogress():
            return await asyncio.get_running_loop().run_in_executor(self._executor, _timed, operation, work)


def _timed(operation: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    try:
        return work()
    finally:
        metrics.STORE_SECONDS.labels(operation).observe(time.perf_counter() - started)
