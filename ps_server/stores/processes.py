"""Names of processes by which a store sees that the process of an earlier claim has ended."""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> bytes:
    """Identifies this process among all that ever run; empty if the operating system does not reveal enough."""
    return _process(os.getpid())


def is_gone(process: bytes) -> bool:
    """Returns whether a process that `this_process` described has surely ended: same process table, and not in it."""
    here = this_process().split()
    there = process.split()
    return bool(here and there) and here[:2] == there[:2] and _process(int(there[2])) != process


def _process(pid: int) -> bytes:
    """Returns boot, process table, number and start time of a process; empty if it does not exist."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        table = Path("/proc/self/ns/pid").readlink()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return b""
    ended = state in "ZX"
    return b"" if ended else f"{boot} {table} {pid} {fields[18]}".encode()
