"""The time for which a job has made no progress although samples wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Standstill:
    """The standstill of a job.

    Attributes:
        seconds: the time without progress; 0 while the job progresses or has nothing to do.
        report: the cause, once it has been reported; else empty.
    """

    seconds: float = 0.0
    report: str = ""

    def add(self, seconds: float) -> None:
        """Adds a time without progress."""
        self.seconds += seconds

    def clear(self) -> None:
        """Records progress."""
        self.seconds = 0.0
        self.report = ""
