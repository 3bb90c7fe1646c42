"""The metrics of lanes; metrics.py has the rules."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from esd.services.runtime.registry import REGISTRY

CONNECTIONS = Gauge(
    "esd_lanes_connections",
    "Connections that this end carries over lanes. 0 at a near end while workers train: their grpc_proxy is not set.",
    registry=REGISTRY,
)
BYTES = Counter(
    "esd_lanes_bytes_total",
    "Bytes of blocks over all lanes, sent or received, with heads and parities. Twice the workers' own bytes: their "
    "messages are short, and the parity of one block is another one.",
    ("op",),
    registry=REGISTRY,
)
RESTORED = Counter(
    "esd_lanes_restored_blocks_total",
    "Blocks that a parity has made up for, since they had not come with the rest of their group: each is a wait for a "
    "packet that was sent again, or for a slower lane, which the connection did not have.",
    registry=REGISTRY,
)
LEFT_OUT = Counter(
    "esd_lanes_left_out_blocks_total",
    "Blocks that were not sent, since their lane was far behind the others. Many: lanes are cut or very unequal.",
    registry=REGISTRY,
)
LANES = (CONNECTIONS, BYTES, RESTORED, LEFT_OUT)
