"""Processor time of running processes, and of each of their threads by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from esd.run.services import processor_seconds

_NUMBER = re.compile(r"[-_:/]?\d+$")
ENDED = "(ended)"  # threads that are no longer there


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of processor time that a process has had, or had between two looks at it.

    Attributes:
        total: of all threads, of those that have ended, too.
        threads: of the threads that were there, by name; threads that differ in a number at the end are one entry.
    """

    total: float
    threads: Mapping[str, float]

    @classmethod
    def of(cls, pid: int) -> ProcessorTime:
        """Looks at a process now.

        Raises:
            ProcessLookupError: there is none, or it ended meanwhile.
        """
        try:
            threads = _threads_of(pid)
            return cls(processor_seconds(pid), threads)
        except OSError as error:
            raise ProcessLookupError(f"there is no process {pid}") from error

    def __sub__(self, earlier: ProcessorTime) -> ProcessorTime:
        total = self.total - earlier.total
        threads = {name: seconds - earlier.threads.get(name, 0.0) for name, seconds in self.threads.items()}
        threads[ENDED] = total - sum(threads.values())
        return ProcessorTime(total, threads)


def _threads_of(pid: int) -> dict[str, float]:
    """Returns the seconds of each thread by name. Raises FileNotFoundError: there is no such process."""
    threads: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            nanoseconds = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        name = "main" if int(task.name) == pid else _NUMBER.sub("", name)
        threads[name] = threads.get(name, 0.0) + nanoseconds / 1e9
    return threads
