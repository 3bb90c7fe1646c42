"""Traces: the time of an iteration, part by part, for a collector of OpenTelemetry (docs/monitoring.md).

The rest of the code knows this module only. The dispatcher begins a trace with its decision, and puts the context of
this span into the plans; the spans of the workers' iterations are its children, and their frames carry their context to
the parameter servers. So the sampler decides once on all of an iteration, and an iteration without a trace costs a look
at an empty field. Standing streams have no spans: they would end with the epoch.

Tracing is on where the environment names a collector, and off otherwise. Then open_telemetry.py is not imported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Protocol

from esd.services.runtime import logs
from esd.services.runtime.extras import is_missing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"
_LAST_SPANS_SECONDS = 2.0  # for the collector to take the spans that wait when a service ends

_log = logging.getLogger(__name__)


class Span(Protocol):
    """A span that has begun. All times are in seconds of time.perf_counter.

    Attributes:
        context: its name for other processes, as W3C's traceparent.
        trace_id: of its trace, in hexadecimal digits.
        ids: the same and its own, as lines of logs have them.
    """

    context: str
    trace_id: str
    ids: Mapping[str, str]

    def child(self, name: str, began: float, ended: float) -> None:
        """Adds a child that is over."""

    def end(self, **attributes: str | int) -> None:
        """Ends the span now, with further attributes."""


class _Tracer(Protocol):
    """The maker of spans (open_telemetry.py)."""

    def start(self, name: str, parent: str, began: float | None, attributes: Mapping[str, str | int]) -> Span | None:
        """Begins a span."""

    def close(self) -> None:
        """Exports the spans that wait."""


class _Process:
    """The maker of the spans of this process; None while it makes none."""

    tracer: _Tracer | None = None


@asynccontextmanager
async def tracing(service: str, instance: str) -> AsyncIterator[None]:
    """Lets this process export spans while the block runs, if its environment asks for it.

    Args:
        service: name of the service.
        instance: tells it from others of this name.
    """
    if _Process.tracer is not None or not _wanted():  # several services in one process share the first one's
        yield
        return
    from esd.services.runtime.open_telemetry import ExportedSpans  # noqa: PLC0415 - an extra, which takes time to import

    tracer = _Process.tracer = ExportedSpans(service, instance)
    try:
        yield
    finally:
        _Process.tracer = None
        closing = threading.Thread(target=tracer.close, name="esd-last-spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _LAST_SPANS_SECONDS)


def begin_trace(name: str) -> Span | None:
    """Begins a span without a parent, with which a trace begins; None if it is not traced."""
    tracer = _Process.tracer
    return None if tracer is None else tracer.start(name, "", None, {})


def continue_trace(parent: str, name: str, *, began: float | None = None, **attributes: str | int) -> Span | None:
    """Begins a child of another process's span; None if it is not traced.

    Args:
        parent: the context of that span, as W3C's traceparent; empty if there is none.
        name: of the span.
        began: when it began, by time.perf_counter; None: now.
        attributes: of the span.
    """
    tracer = _Process.tracer
    return None if tracer is None or not parent else tracer.start(name, parent, began, attributes)


def enter(span: Span | None) -> None:
    """Has the lines that this thread logs from now on name the span, or none. No event loop may run in the thread."""
    if _Process.tracer is not None:
        logs.name_span({} if span is None else span.ids)


def _wanted() -> bool:
    """Returns whether the environment asks for spans that this process can export."""
    environment = os.environ
    named = next((name for name in _ENDPOINTS if environment.get(name)), None)
    if named is None or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp").strip() not in ("", "otlp"):
        return False
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter.otlp.proto.http") is None:
        _log.warning(
            "no traces: %s", is_missing(f"tracing ({named})", "opentelemetry-sdk with its exporter", "tracing")
        )
        return False
    for name in _PROTOCOLS:
        if environment.get(name, _SPOKEN) not in ("", _SPOKEN):
            _log.warning(
                "no traces: %s is %s, and only %s is spoken; give the collector's port for it (often 4318)",
                name, environment[name], _SPOKEN,
            )  # fmt: skip
            return False
    return True
