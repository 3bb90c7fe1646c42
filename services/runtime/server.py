"""The one way to serve gRPC: health, reflection, errors, metrics, limits, keepalive, graceful stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.call_limits import CallLimits
from esd.services.runtime.channel import KEEPALIVE_OPTIONS, KEEPALIVE_SECONDS
from esd.services.runtime.congestion import congestion_control
from esd.services.runtime.guard import Guard
from esd.services.runtime.health import Health
from esd.services.runtime.http import serve_http
from esd.services.runtime.interceptors import CallInterceptor
from esd.services.runtime.metrics_page import metrics_page
from esd.services.runtime.roles import RolesByName
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ServerSettings, SettingsError, split_address

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 10
_IDLE_SECONDS = 300

# The generated add_XServicer_to_server, the servicer, and the service's full name such as "esd.v1.ParameterServer".
Service = tuple[Callable[[Any, grpc.aio.Server], None], Any, str]


@dataclass(slots=True)
class Server:
    """A running server.

    Attributes:
        address: `host:port` of the gRPC service.
        metrics_address: `host:port` of the metrics page; None if it is off.
        guard: admits its callers, for services that have another protocol, too.
        limits: of its calls, likewise.
    """

    address: str
    metrics_address: str | None
    guard: Guard
    limits: CallLimits
    _health: Health

    async def set_serving(self, serving: bool) -> None:
        """Sets the status of health checks. A new server is not serving."""
        await self._health.set_serving(serving)


@asynccontextmanager
async def serve(name: str, services: Sequence[Service], settings: ServerSettings) -> AsyncIterator[Server]:
    """Serves until the block is left; then refuses new calls and lets running ones finish for the grace period.

    Args:
        name: name of the service, for logs.
        services: the services.
        settings: address, limits, grace period, metrics port.

    Raises:
        FailedPrecondition: the server cannot listen on an address.
        SettingsError: a file of certificates, keys or tokens is missing or malformed.
    """
    credentials = Credentials.read(settings)
    guard = Guard(credentials.accepted, RolesByName(settings.tls_clients) if settings.tls_clients else None)
    limits = CallLimits(settings.max_concurrent_rpcs, settings.variable("max_concurrent_rpcs"))
    grpc_server = grpc.aio.server(
        interceptors=(CallInterceptor(guard, limits),),
        options=server_options(settings),
    )
    names = [full_name for _, _, full_name in services]
    for add_to_server, servicer, _ in services:
        add_to_server(servicer, grpc_server)
    server_health = Health(names)
    server_health.add_to(grpc_server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], grpc_server)

    address = _listen(grpc_server, settings, credentials)
    pages = {"/metrics": metrics_page(settings)}
    variable = settings.variable("metrics_port")
    async with (
        congestion_control(settings.congestion),
        serve_http("metrics", settings.listen, settings.metrics_port, variable, pages) as metrics_address,
    ):
        server = Server(address, metrics_address, guard, limits, server_health)
        await server.set_serving(False)
        await grpc_server.start()
        _log.info("%s listens on %s", name, address)
        _tell_who_may_call(guard, address, settings)
        try:
            yield server
        finally:
            await server_health.enter_graceful_shutdown()
            await grpc_server.stop(settings.grace_seconds)
            _log.info("%s has stopped", name)


def _tell_who_may_call(guard: Guard, address: str, settings: ServerSettings) -> None:
    """Logs that callers are not distinguished, if so, and the settings that give them roles."""
    clients, tokens = settings.variable("tls_clients"), settings.variable("token_file")
    if guard.is_open:
        _log.info(
            "every process that reaches %s may make every call; %s or %s gives callers roles", address, clients, tokens
        )
    elif not guard.knows_roles:
        _log.info(
            "every bearer of the token may make every call at %s; %s, or lines of a role and a token in %s, gives "
            "callers roles",
            address, clients, tokens,
        )  # fmt: skip


def server_options(settings: ServerSettings) -> Sequence[tuple[str, int]]:
    """Returns gRPC's options for the server; `channel_options` are their counterpart."""
    return (
        *KEEPALIVE_OPTIONS,
        # Half of our clients' interval, so that a ping that comes early is not answered with "too many pings".
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_SECONDS * 500),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        # Connections of strangers that send nothing are closed. Clients reconnect when they need a connection again.
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", _IDLE_SECONDS * 1000),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", settings.window_bytes),
        # Without this, Linux would let two servers share a port and divide the connections between them.
        ("grpc.so_reuseport", 0),
    )


def _listen(server: grpc.aio.Server, settings: ServerSettings, credentials: Credentials) -> str:
    """Binds the server and returns the address with its actual port."""
    host, _, _ = settings.listen.rpartition(":")
    try:
        return f"{host}:{_bind(server, settings, credentials)}"
    except RuntimeError:  # gRPC's error has no reason, the operating system's has
        raise FailedPrecondition(
            f"cannot listen on {settings.listen}: {_refusal(settings.listen)}; "
            f"choose another address with {settings.variable('listen')}"
        ) from None


def _bind(server: grpc.aio.Server, settings: ServerSettings, credentials: Credentials) -> int:
    """Binds one address with the credentials of this deployment and returns its port."""
    ask_clients = bool(settings.tls_clients)
    if ask_clients and not (credentials.certificate and credentials.authority):
        raise SettingsError(
            f"{settings.variable('tls_clients')} is set without {settings.variable('tls_certificate')} and "
            f"{settings.variable('tls_ca')}, so clients' certificates cannot be checked"
        )
    secure = credentials.for_server(ask_clients=ask_clients)
    if secure is not None:
        return server.add_secure_port(settings.listen, secure)
    if not _is_loopback(settings.listen):
        _log.warning(
            "%s is served without encryption to every caller; set %s and %s unless the network is private",
            settings.listen,
            settings.variable("tls_certificate"),
            settings.variable("tls_key"),
        )
    return server.add_insecure_port(settings.listen)


def _is_loopback(address: str) -> bool:
    host, _ = split_address(address)
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _refusal(address: str) -> str:
    """Returns the operating system's reason why an address cannot be bound."""
    host, port = split_address(address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return "gRPC refuses it"
