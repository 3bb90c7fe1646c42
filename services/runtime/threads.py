"""Pools of threads that bear their name in the operating system, too: `top -H`, profilers and benchmarks show it."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

_SET_NAME = 15  # PR_SET_NAME of prctl(2)


def named_threads(name: str, count: int = 1) -> ThreadPoolExecutor:
    """Makes a pool of at most `count` threads; of their name Linux shows the first 15 characters."""
    return ThreadPoolExecutor(count, thread_name_prefix=name, initializer=_name_this_thread, initargs=(name,))


def _name_this_thread(name: str) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)
