"""Threads as the operating system sees them: their names and their scheduling."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

_SET_NAME = 15  # PR_SET_NAME of prctl(2)


def named_threads(name: str, count: int = 1) -> ThreadPoolExecutor:
    """Makes a pool of at most `count` threads, whose names `top -H`, profilers and benchmarks show, too.

    The end of the process waits for these threads; see leavable_thread.py for threads that it leaves.
    """
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=name_this_thread, initargs=(name,))


def name_this_thread(name: str) -> None:
    """Sets the name of the calling thread in the operating system; Linux shows its first 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)


@contextmanager
def batch_threads() -> Iterator[None]:
    """Keeps threads that are started in the block from preempting other threads when they wake up (SCHED_BATCH).

    They still get their share of the processor, only later. Has no effect if the system cannot do that, or if this
    thread is not scheduled by the default policy itself.
    """
    if sys.platform != "linux" or os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    with suppress(OSError):
        os.sched_setscheduler(
            0, os.SCHED_BATCH, os.sched_param(0)
        )  # threads inherit it from the thread that starts them
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
