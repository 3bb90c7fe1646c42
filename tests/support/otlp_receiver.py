"""A collector of OpenTelemetry for tests: takes the spans that the real exporter sends, over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as the collector has it; ids are hexadecimal digits, times nanoseconds."""

    service: str
    instance: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    attributes: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """The spans that have arrived so far.

    Attributes:
        endpoint: for OTEL_EXPORTER_OTLP_ENDPOINT.
        spans: in the order of their arrival.
    """

    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, service: str, name: str) -> list[ReceivedSpan]:
        """Returns the spans of a service that have a name."""
        return [span for span in self.spans if (span.service, span.name) == (service, name)]

    def children(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        """Returns the children of a span, as they began."""
        of_parent = (span for span in self.spans if span.parent_id == parent.span_id)
        return sorted(of_parent, key=lambda span: (span.began, span.ended))

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Takes the spans of a request."""
        for of_resource in request.resource_spans:
            resource = _values(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        resource["service.name"],
                        resource["service.instance.id"],
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _values(span.attributes),
                    )
                    for span in of_scope.spans
                ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """Receives spans at a free port of this machine while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base
            """Writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Collector(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, name="otlp-receiver")
        serving.start()
        try:
            yield received
        finally:
            server.shutdown()
            serving.join()
