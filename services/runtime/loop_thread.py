"""An event loop in a thread of its own, for callers without one, and for callers whose loop may be blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from esd.services.runtime.threads import name_this_thread

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """A running event loop in a thread of its own, which the end of the process does not wait for.

    Args:
        name: of the thread, also in the operating system.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop has ended."""
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins a coroutine in the loop, after those begun before."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the loop, and waits for it. It ends with its caller, such as at Ctrl-C."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls a function in the loop, after the calls made before, and does not wait for it."""
        self._loop.call_soon_threadsafe(lambda: function(*args, **kwargs))

    def end(self) -> None:
        """Has the loop and the thread end. Everything that runs in the loop must have ended before."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """Ends the loop and the thread, and waits for it."""
        self.end()
        self._thread.join()

    def _run(self, name: str) -> None:
        name_this_thread(name)
        self._loop.run_forever()
        self._loop.close()
