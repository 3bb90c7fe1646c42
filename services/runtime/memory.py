"""Keeps freed memory in the process for longer than glibc does on its own."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)
_LARGEST_REUSED = 8 * 2**20
_MOST_KEPT = 64 * 2**20


def keep_freed_memory() -> None:
    """Makes malloc reuse blocks of up to 8 MiB, and keep up to 64 MiB free at the end of each of its heaps.

    By default glibc returns such blocks to the kernel, which clears every page of the next block. With messages of a
    MiB, each of which is copied a few times, the clearing takes as long as much of the processing. Has no effect with
    another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
