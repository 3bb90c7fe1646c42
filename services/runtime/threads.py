"""What the operating system knows of threads: their names, and whether they take the processor from others."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

_SET_NAME = 15  # PR_SET_NAME of prctl(2)


def named_threads(name: str, count: int = 1) -> ThreadPoolExecutor:
    """Makes a pool of at most `count` threads that bear their name in the operating system, too.

    So `top -H`, profilers and benchmarks show it. The end of the process waits for them; see leavable_thread.py.
    """
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=name_this_thread, initargs=(name,))


def name_this_thread(name: str) -> None:
    """Gives the calling thread a name in the operating system, of which Linux shows the first 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)


@contextmanager
def batch_threads() -> Iterator[None]:
    """Threads that are started inside do not take the processor from a thread that runs when they wake up.

    They get as much of it as others do, only not at once (SCHED_BATCH). Where the system cannot do that, or this thread
    is not scheduled as usual itself, nothing changes.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # which threads inherit from their maker
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
