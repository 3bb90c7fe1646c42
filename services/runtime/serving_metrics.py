"""The metrics of a served model; metrics.py has the rules."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from esd.services.runtime.registry import REGISTRY

REQUESTS = Counter(
    "esd_model_requests_total",
    "Requests for scores, by way (grpc or rest) and status code. INVALID_ARGUMENT: a client sends other inputs than "
    "the model takes. RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED: it is short of processors; start another server.",
    ("way", "code"),
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "esd_model_request_seconds",
    "Time from a request's arrival to its answer, by way (grpc or rest). Long with esd_model_waiting_bytes near 0: "
    "requests are large; long with many of them: it is short of processors.",
    ("way",),
    buckets=(2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
SCORED = Counter(
    "esd_model_scored_samples_total",
    "Samples that were scored. Flat while requests come: each of them is refused; see esd_model_requests_total.",
    registry=REGISTRY,
)
WAITING = Gauge(
    "esd_model_waiting_bytes",
    "Bytes of the requests that wait for their scores or are scored. Near ESD_MODEL_MAX_WAITING_BYTES requests are "
    "refused: start another server, or have clients send fewer at a time.",
    registry=REGISTRY,
)
RELOADS = Counter(
    "esd_model_reloads_total",
    "Newer folders, by result: loaded, or refused, so that the model before it scores on; the log has the reason.",
    ("result",),
    registry=REGISTRY,
)

SERVED_MODEL = (REQUESTS, REQUEST_SECONDS, SCORED, WAITING, RELOADS)
