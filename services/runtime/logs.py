"""Logs: one JSON object per line on standard error, with the context of the task that wrote it."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

from esd.services.runtime.log_limit import LineLimit

LogLevel = Literal["debug", "info", "warning", "error"]

_context: ContextVar[Mapping[str, object]] = ContextVar("log_context", default=MappingProxyType({}))
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def configure(level: LogLevel) -> None:
    """Sends all logs of this process to standard error as JSON lines, from `level` up. May be called again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(LineLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def bind(**fields: object) -> None:
    """Adds fields to every line that the current task and the tasks it starts will log.

    Fields cannot be removed: a task's context ends with the task, and every RPC runs in its own.
    """
    _context.set(MappingProxyType({**_context.get(), **fields}))


class _Span(threading.local):
    """The span in which a thread works, as fields of its lines. Tasks that it starts in an event loop are not in it."""

    ids: Mapping[str, str] = MappingProxyType({})


_span = _Span()


def name_span(ids: Mapping[str, str]) -> None:
    """Has every line that the current thread will log name a span, in place of the last one.

    Args:
        ids: the fields of the line, such as `trace_id`; empty: there is no span any more.
    """
    _span.ids = ids


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, the context, `extra` fields, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line of JSON; values without a JSON type are written as text."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_context.get(),
            **_span.ids,
            **{key: value for key, value in record.__dict__.items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
