"""Channels to other services: one factory, so that both ends agree on limits, deadlines, keepalive and retries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc

from esd.services.runtime.deadline import Deadline
from esd.services.runtime.release import INTERFACES, user_agent
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES

# Calls with one request and one answer end within this time even if their caller sets no timeout of its own.
# Streams last as long as what they carry: their callers set the timeout, or none for a watch.
DEFAULT_DEADLINE_SECONDS = 60.0

# A peer that vanishes without closing its connection (power, cable, kill of its machine) is noticed within
# 20 + 10 s. Shorter intervals would cost slow links more than they tell; longer ones delay recovery.
KEEPALIVE_SECONDS = 20
KEEPALIVE_TIMEOUT_SECONDS = 10

KEEPALIVE_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_SECONDS * 1000),
    # Plan streams and waiting pulls are silent for long; pings may go on without data for ever.
    ("grpc.http2.max_pings_without_data", 0),
)

# A peer that was away for long is tried at least this often: gRPC would let two minutes pass between its attempts.
RECONNECT_SECONDS = 2

# UNAVAILABLE is the only status that promises that a repetition may help and cannot harm. Five attempts is gRPC's
# upper bound; the pauses (each up to 0.2, 0.4, 0.8, 1.6 s) ride out a restart of the peer's connection, not of the
# peer: that is the callers' business, who know how long waiting makes sense. Streams are the callers' business
# altogether: of those that gRPC repeats while connections are reset, one in some hundreds hangs until its deadline.
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
    """Opens a channel to `host:port`; nothing is sent before the first call. Close it, or use it in `async with`.

    Calls fail at once with UNAVAILABLE, after the retries, while the peer is away (no wait-for-ready): they never
    hang on a wrong address. `timeout=` of a call shortens `deadline_seconds`; streams have no other deadline. A
    call that has missed its own says what was with the connection.

    gRPC repeats calls with one request and one answer itself, a few times; streams are for their callers to repeat.

    With credentials that name an authority the channel is encrypted and the peer's certificate is checked, and
    their token goes with every call. `caller` is the name that the service writes into its log beside the address;
    a service of another release refuses all calls (`services/runtime/release.py`).
    """
    options = channel_options(max_message_bytes, caller, credentials.server_name)
    deadline = Deadline(address, deadline_seconds)
    interceptors: Any = [deadline]  # the stubs have another type
    secure = credentials.for_channel()
    if secure is None:
        opened = grpc.aio.insecure_channel(address, options=options, interceptors=interceptors)
    else:
        opened = grpc.aio.secure_channel(address, secure, options=options, interceptors=interceptors)
    deadline.channel = opened
    return opened


def channel_options(max_message_bytes: int, caller: str = "", server_name: str = "") -> Sequence[tuple[str, int | str]]:
    """Returns what a channel tells gRPC; the other side is `server_options`."""
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
