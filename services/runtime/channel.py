"""Channels to other services: one factory, so that both ends agree on limits, deadlines, keepalive and retries."""

from __future__ import annotations

import json
from collections.abc import Sequence

import grpc

from esd.services.runtime.deadline import Deadline
from esd.services.runtime.proxies import proxy_options
from esd.services.runtime.release import INTERFACES, user_agent
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES

# Calls with one request and one answer end within this time even if their caller sets no timeout of its own. Streams
# may last as long as an epoch: their callers set a timeout, or none for a watch.
DEFAULT_DEADLINE_SECONDS = 60.0

# A peer that vanishes without closing its connection (power, cable, kill of its machine) is noticed within 20 + 10 s.
# Shorter intervals would load slow links with pings; longer ones would delay recovery.
KEEPALIVE_SECONDS = 20
KEEPALIVE_TIMEOUT_SECONDS = 10

KEEPALIVE_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
    # Plan streams and waiting pulls are silent for long, so any number of pings may be sent without data.
    ("grpc.http2.max_pings_without_data", 0),
)

# The longest pause between attempts to reach a peer that was away for long; gRPC's own is two minutes.
RECONNECT_SECONDS = 2

# UNAVAILABLE is the only status that promises that a retry may help and cannot harm. Five attempts is gRPC's upper
# bound; the pauses (each up to 0.2, 0.4, 0.8, 1.6 s) outlast a reconnection to the peer, not a restart of it: callers
# retry over a restart, because only they know how long waiting makes sense. Streams are retried by callers only: if
# gRPC retries streams while connections are reset, one in some hundreds hangs until its deadline.
_RETRY_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "0.2s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}

_UNARY_CALLS = [
    {"service": service.full_name, "method": method.name}
    for file in INTERFACES
    for service in file.services_by_name.values()
    for method in service.methods
    if not method.client_streaming and not method.server_streaming
]


def channel(
    address: str,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
    credentials: Credentials = PLAINTEXT,
    caller: str = "",
) -> grpc.aio.Channel:
    """Opens a channel to `host:port`; sends nothing before the first call. Close it, or use it in `async with`.

    Calls fail with UNAVAILABLE, after the retries, while the peer is away (no wait-for-ready): they never hang on a
    wrong address. `timeout=` of a call takes the place of `deadline_seconds`; streams have no other deadline. The error
    of a missed deadline describes the state of the connection.

    gRPC itself retries calls with one request and one answer a few times; callers retry streams.

    With credentials that name an authority, the channel is encrypted, the peer's certificate is checked, and the token
    is sent with every call. The service writes `caller`, the name of this process, to its log. A service of another
    release refuses all calls (`services/runtime/release.py`).
    """
    options = (*channel_options(max_message_bytes, caller, credentials.server_name), *proxy_options(address))
    deadline = Deadline(address, deadline_seconds)
    secure = credentials.for_channel()
    if secure is None:
        opened = grpc.aio.insecure_channel(address, options=options, interceptors=deadline.interceptors)
    else:
        opened = grpc.aio.secure_channel(address, secure, options=options, interceptors=deadline.interceptors)
    deadline.channel = opened
    return opened


def channel_options(max_message_bytes: int, caller: str = "", server_name: str = "") -> Sequence[tuple[str, int | str]]:
    """Returns gRPC's options for a channel; `server_options` are their counterpart."""
    service_config = {"methodConfig": [{"name": _UNARY_CALLS, "retryPolicy": _RETRY_POLICY}]}
    named = (("grpc.ssl_target_name_override", server_name),) if server_name else ()
    return (
        *KEEPALIVE_OPTIONS,
        *named,
        ("grpc.primary_user_agent", user_agent(caller)),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_SECONDS * 1000),
        ("grpc.enable_retries", 1),
        ("grpc.per_rpc_retry_buffer_size", max_message_bytes),
        ("grpc.service_config", json.dumps(service_config)),
    )
