"""A thread that the end of the process does not wait for, for calls that may never return.

The interpreter joins the threads of every ThreadPoolExecutor before it ends, so one that reads a pipe to which nobody
writes keeps the process for ever.
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

LEAVE_SECONDS = 1.0  # in which calls that do return may do so, before the interpreter falls apart under them

P = ParamSpec("P")
R = TypeVar("R")


class LeavableThread:
    """Makes calls in one thread, in the order in which they were submitted. Whoever submits bounds how many wait."""

    def __init__(self, name: str) -> None:
        """Starts the thread, which bears the name in the operating system, too."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
        self._thread.start()
        _started.add(self)

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Has a call made behind those that wait."""
        future: Future[R] = Future()
        self._calls.put((future, partial(function, *args, **kwargs)))
        return future

    def end(self) -> None:
        """Ends the thread behind the calls that were submitted."""
        self._calls.put(None)

    def join(self, seconds: float) -> None:
        """Waits for the thread to end, but not for longer."""
        self._thread.join(seconds)

    def _run(self, name: str) -> None:
        name_this_thread(name)
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - it is for whoever waits for the result
                    future.set_exception(error)
            del call, future, function  # what they hold goes now, not when the next call comes


_started: WeakSet[LeavableThread] = WeakSet()


@atexit.register
def _leave() -> None:
    """Waits for the calls that are running, but not for long."""
    until = time.monotonic() + LEAVE_SECONDS
    threads = list(_started)
    for each in threads:
        each.end()
    for each in threads:
        each.join(max(0.0, until - time.monotonic()))
