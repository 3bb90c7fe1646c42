"""Keeps freed memory in the process for longer than glibc does on its own, and returns it when asked."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST_REUSED = 8 * 2**20
_MOST_KEPT = 64 * 2**20


def keep_freed_memory() -> None:
    """Makes malloc reuse blocks of up to 8 MiB, and keep up to 64 MiB free at the end of each of its heaps.

    By default glibc returns such blocks to the kernel, which clears every page of the next block. With messages of a
    MiB, each of which is copied a few times, the clearing takes as long as much of the processing. Has no effect with
    another C library.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_TRIM_THRESHOLD, _MOST_KEPT)


def return_freed_memory() -> None:
    """Returns the free pages of all heaps to the kernel, also between blocks in use. Has no effect as above.

    Of many blocks that were kept for long, such as the samples between two checkpoints, hardly any are at the end of a
    heap.
    """
    malloc_trim = _of_libc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _of_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
