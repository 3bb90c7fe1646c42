"""Spans by OpenTelemetry. Only tracing.py imports this module, and only in a process that exports spans.

The standard variables configure all of it: OTEL_EXPORTER_OTLP_* the collector, OTEL_TRACES_SAMPLER the share of the
iterations, OTEL_BSP_* the queue of spans that wait (2,048 if they say nothing; further ones are dropped),
OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES the names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from esd.services.runtime.release import RELEASE

_W3C = TraceContextTextMapPropagator()
_FIELD = "traceparent"  # of the W3C's trace context
_LONGEST = 55  # characters of one; a peer may send more

Attributes = Mapping[str, str | int]


class RecordedSpan:
    """A span of tracing.py that OpenTelemetry records.

    Args:
        tracer: makes its children.
        span: of OpenTelemetry.
        clock: nanoseconds since 1970 less nanoseconds of time.perf_counter, one value for all times of the span and its
            children: so the end of one is the beginning of the next.
    """

    def __init__(self, tracer: trace.Tracer, span: trace.Span, clock: int) -> None:
        self._tracer = tracer
        self._span = span
        self._clock = clock
        of_span = span.get_span_context()
        self.trace_id = format_trace_id(of_span.trace_id)
        self.ids: Mapping[str, str] = {"trace_id": self.trace_id, "span_id": format_span_id(of_span.span_id)}
        carrier: dict[str, str] = {}
        self._context = set_span_in_context(span, Context())
        _W3C.inject(carrier, self._context)
        self.context = carrier[_FIELD]

    def child(self, name: str, began: float, ended: float) -> None:
        """Adds a child that is over."""
        span = self._tracer.start_span(name, self._context, start_time=self._clock + _nanoseconds(began))
        span.end(self._clock + _nanoseconds(ended))

    def end(self, **attributes: str | int) -> None:
        """Ends the span now, with further attributes."""
        self._span.set_attributes(_named(attributes))
        self._span.end(self._clock + time.perf_counter_ns())


class ExportedSpans:
    """Makes the spans of this process, and exports them in a thread.

    Args:
        service: name of the service.
        instance: tells it from others of this name.
    """

    def __init__(self, service: str, instance: str) -> None:
        named = {"service.name": f"esd-{service}", "service.instance.id": instance, "service.version": RELEASE}
        resource = Resource.create({**named, **OTELResourceDetector().detect().attributes})
        # Not at exit: processes of services leave without Python's handlers, and close it before.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("esd", RELEASE)

    def start(self, name: str, parent: str, began: float | None, attributes: Attributes) -> RecordedSpan | None:
        """Begins a span; None if the sampler leaves it out, or its parent is none.

        Args:
            name: of the span.
            parent: the traceparent of its parent; empty: it begins a trace, and the sampler decides on all of it.
            began: when it began; None: now.
            attributes: of the span.
        """
        context = _W3C.extract({_FIELD: parent[:_LONGEST]}, Context())
        if parent and not get_current_span(context).get_span_context().is_valid:
            return None
        now = time.perf_counter_ns()
        clock = time.time_ns() - now
        at = clock + (now if began is None else _nanoseconds(began))
        span = self._tracer.start_span(name, context, attributes=_named(attributes), start_time=at)
        return RecordedSpan(self._tracer, span, clock) if span.get_span_context().trace_flags.sampled else None

    def close(self) -> None:
        """Exports the spans that wait."""
        self._provider.shutdown()


def _named(attributes: Attributes) -> Attributes:
    """Returns attributes by their names in a trace, beside the attributes of other programs."""
    return {f"esd.{name}": value for name, value in attributes.items()}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
