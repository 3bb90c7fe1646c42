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

FRESH_LAG = Gauge(
    "esd_model_fresh_lag_seconds",
    "Time since the first change of a row at a parameter server that is not served yet; 0: all changes are served, or "
    "no job is followed. Rising: see esd_model_fresh_connected; otherwise the network or a processor is short.",
    registry=REGISTRY,
)
FRESH_CONNECTED = Gauge(
    "esd_model_fresh_connected",
    "1 while all tables of a job are followed at all its parameter servers. 0 with ESD_MODEL_FRESH set: a server is "
    "away or refuses the calls; the log has the reason, and served rows grow old.",
    registry=REGISTRY,
)
FRESH_SECONDS = Histogram(
    "esd_model_fresh_seconds",
    "Time from a row's change at a parameter server to its being served, of the oldest row of each round. Rounds come "
    "every quarter of a second.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64),
    registry=REGISTRY,
)
FRESH_ROWS = Counter(
    "esd_model_fresh_rows_total",
    "Rows that parameter servers have sent to be served, also if they are equal to the folder's. Flat while the job "
    "trains: its workers own what they train, and push it at checkpoints; see --checkpoint-every and --sync.",
    registry=REGISTRY,
)
FRESH_ANEW = Counter(
    "esd_model_fresh_anew_total",
    "How often all rows of a table were read at a server. Once each at the start and for a newer folder; rising "
    "besides: a server was restarted or went back to a checkpoint, or ESD_PS_MAX_CHANGED_BYTES is too small.",
    registry=REGISTRY,
)
FRESH_BYTES = Gauge(
    "esd_model_fresh_bytes",
    "Memory of rows that are newer than the folder's. Near ESD_MODEL_FRESH_BYTES the job is followed no more: export "
    "the model again, or raise the limit.",
    registry=REGISTRY,
)
FRESH_DENSE = Counter(
    "esd_model_fresh_dense_total",
    "How often newer dense parameters of a job took the place of those before. Flat while the job takes checkpoints: "
    "the folder's graph does not take them; the log has the reason.",
    registry=REGISTRY,
)

SERVED_MODEL = (
    REQUESTS, REQUEST_SECONDS, SCORED, WAITING, RELOADS, FRESH_LAG, FRESH_CONNECTED, FRESH_SECONDS, FRESH_ROWS,
    FRESH_ANEW, FRESH_BYTES, FRESH_DENSE,
)  # fmt: skip
