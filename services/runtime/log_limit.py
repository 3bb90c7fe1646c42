"""A limit of the lines of a log, so that a peer which fails over and over does not fill the disk."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

LINES_PER_MINUTE = 600  # from one place of the code
_SECONDS = 60.0


@dataclass(slots=True)
class _Minute:
    """The lines of one place.

    Attributes:
        begin: time of the first one, in seconds since 1970.
        lines: written since then.
        suppressed: left out, and told by no line as yet.
    """

    begin: float
    lines: int = 0
    suppressed: int = 0


class LineLimit(logging.Filter):
    """Passes at most 600 lines a minute from each statement that logs, but all lines of level `debug`.

    The first line after suppressed ones has their number, in the field `suppressed`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._minutes: dict[tuple[str, int], _Minute] = {}  # by statement, of which a program has a fixed number

    def filter(self, record: logging.LogRecord) -> bool:
        """Tells whether a line is written."""
        if record.levelno <= logging.DEBUG:
            return True
        with self._lock:
            minute = self._minutes.setdefault((record.pathname, record.lineno), _Minute(record.created))
            if not 0 <= record.created - minute.begin < _SECONDS:  # below 0: the clock was set back
                minute.begin, minute.lines = record.created, 0
            if minute.lines == LINES_PER_MINUTE:
                minute.suppressed += 1
                return False
            minute.lines += 1
            if minute.suppressed:
                record.suppressed, minute.suppressed = minute.suppressed, 0
            return True
