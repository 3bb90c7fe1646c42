"""A thread that the end of the process does not wait for, for calls that may never return.

The interpreter joins the threads of every ThreadPoolExecutor before it ends, so a thread that reads a pipe without a
writer would keep the process alive for ever.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from esd.services.runtime.threads import name_this_thread

LEAVE_SECONDS = 1.0  # time for running calls to return before the interpreter is torn down under them

P = ParamSpec("P")
R = TypeVar("R")


class LeavableThread:
    """Makes calls in one thread, in the order of their submission. The caller bounds the number of queued calls."""

    def __init__(self, name: str) -> None:
        """Starts the thread, under this name also in the operating system."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
        self._thread.start()
        _started.add(self)

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Queues a call after the calls that are already waiting."""
        future: Future[R] = Future()
        self._calls.put((future, partial(function, *args, **kwargs)))
        return future

    def end(self) -> None:
        """Ends the thread after the submitted calls."""
        self._calls.put(None)

    def join(self, seconds: float) -> None:
        """Waits up to `seconds` for the thread to end."""
        self._thread.join(seconds)

    def _run(self, name: str) -> None:
        name_this_thread(name)
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                    future.set_exception(error)
            del call, future, function  # frees their objects now, and not only when the next call comes


_started: WeakSet[LeavableThread] = WeakSet()


@atexit.register
def _leave() -> None:
    """Waits a moment for the running calls to return."""
    until = time.monotonic() + LEAVE_SECONDS
    threads = list(_started)
    for each in threads:
        each.end()
    for each in threads:
        each.join(max(0.0, until - time.monotonic()))
