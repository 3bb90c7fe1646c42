"""The output of `fit`: events in lines, and the progress in a bar where the last line can be written again."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from esd.run.events import Event, Progressed, Started
from esd.run.pace import Pace
from esd.services.domain.state import JobState

_BAR_CHARACTERS = 20
_UNKNOWN_SIZE = 120, 24  # columns and lines of a notebook, which has no fixed number
_BAR_SECONDS, _LINE_SECONDS = 0.2, 10.0  # between two bars, and two lines where no bar is shown


class PrintedRun:
    """Prints events as they come.

    A terminal and a notebook show a bar. Elsewhere, as in a pipe or a log, a line every few seconds has the progress.

    Args:
        stream: gets the text; None: standard error.
        clock: returns monotonic seconds.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._has_bar = self._stream.isatty() or type(self._stream).__module__.startswith("ipykernel.")
        self._iterations: int | None = None
        self._pace = Pace(0, None)
        self._printed = clock() - _LINE_SECONDS
        self._bar_width = 0  # of the bar in the last line, which has no end; 0: there is none

    def __call__(self, event: Event) -> None:
        """Prints an event."""
        if isinstance(event, Progressed):
            if event.state.iterations_confirmed:
                self._show(event.state)
            return
        if isinstance(event, Started):
            self._iterations = event.iterations
            self._pace = Pace(event.first_iteration, event.iterations)
        self._stream.write(("\n" if self._bar_width else "") + f"{event}\n")
        self._bar_width = 0
        self._stream.flush()

    def _show(self, state: JobState) -> None:
        now = self._clock()
        self._pace.seen(state.iterations_confirmed, now)
        if now - self._printed < (_BAR_SECONDS if self._has_bar else _LINE_SECONDS):
            return
        self._printed = now
        line = f"{self._pace}, loss {state.quality.loss:.4f}, AUC {state.quality.auc:.4f}"
        if self._has_bar:
            line = self._bar() + line
            while len(line) >= shutil.get_terminal_size(_UNKNOWN_SIZE).columns:  # two lines could not be written again
                line = line.rpartition(", ")[0]
            self._stream.write("\r" + line.ljust(self._bar_width))
            self._bar_width = len(line)
        else:
            self._stream.write(f"{state.phase.value}, {line}\n")
        self._stream.flush()

    def _bar(self) -> str:
        if not self._iterations:
            return ""
        full = _BAR_CHARACTERS * min(self._pace.done, self._iterations) // self._iterations
        return f"[{'#' * full}{'.' * (_BAR_CHARACTERS - full)}] "
