"""A statement that logs over and over does not fill the disk, and the lines that it has left out are counted."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

from esd.services.runtime.log_limit import LINES_PER_MINUTE, LineLimit
from esd.services.runtime.logs import JsonFormatter

BEGIN = 1_800_000_000.0  # seconds since 1970


class Log:
    """A handler as services have it, for lines of given times."""

    def __init__(self) -> None:
        self._written = io.StringIO()
        self._handler = logging.StreamHandler(self._written)
        self._handler.setFormatter(JsonFormatter())
        self._handler.addFilter(LineLimit())

    def take(self, *times: float, line: int = 1, level: int = logging.WARNING) -> None:
        for time in times:
            record = logging.LogRecord("esd", level, "esd/refusing.py", line, "refused", (), None)
            record.created = BEGIN + time
            self._handler.handle(record)

    @property
    def suppressed(self) -> list[int]:
        """Of each line that was written, the number of lines that it says were left out before it."""
        return [json.loads(line).get("suppressed", 0) for line in self._written.getvalue().splitlines()]


def test_lines_beyond_the_limit_are_left_out_and_counted_in_the_next_minute() -> None:
    log = Log()
    log.take(*[0.0] * (LINES_PER_MINUTE + 7), 59.9)
    assert log.suppressed == [0] * LINES_PER_MINUTE
    log.take(60.0, 60.0)
    assert log.suppressed[LINES_PER_MINUTE:] == [8, 0]


def test_other_statements_and_debug_lines_are_not_limited_by_it() -> None:
    log = Log()
    log.take(*[0.0] * (LINES_PER_MINUTE + 7))
    log.take(0.0, line=2)
    log.take(*[0.0] * (LINES_PER_MINUTE + 1), line=3, level=logging.DEBUG)
    assert log.suppressed == [0] * (2 * LINES_PER_MINUTE + 2)


def test_a_clock_that_was_set_back_silences_nothing() -> None:
    log = Log()
    log.take(*[0.0] * (LINES_PER_MINUTE + 7))
    log.take(-3600.0)
    assert log.suppressed[LINES_PER_MINUTE:] == [7]


def test_a_process_limits_its_lines() -> None:
    program = (
        "import logging; from esd.services.runtime import logs; logs.configure('info')\n"
        f"for _ in range({LINES_PER_MINUTE + 7}): logging.getLogger('esd').info('refused')"
    )
    written = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert len(written.stderr.splitlines()) == LINES_PER_MINUTE
