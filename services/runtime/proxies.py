"""Proxies in the environment: calls on this machine never use one, and the errors of other calls name the variable."""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

# gRPC takes the first that is set. It reads the exceptions in `no_grpc_proxy` or `no_proxy` itself.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")


def proxy_options(address: str) -> tuple[tuple[str, int], ...]:
    """Returns gRPC's options for a channel to `host:port`: no proxy for an address of this machine."""
    return (("grpc.enable_http_proxy", 0),) if is_local(address) else ()


def is_local(address: str) -> bool:
    """Returns whether `host:port` is an address of this machine: loopback, or its own name."""
    host = _host(address)
    if address.startswith("unix:") or host in ("localhost", socket.gethostname()) or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def through_proxy(address: str) -> str:
    """Returns the end of an error about `host:port` that names the proxy on the way; empty if there is none."""
    name = next((each for each in _PROXIES if os.environ.get(each)), "")
    exceptions = next((os.environ[each] for each in _EXCEPTIONS if os.environ.get(each)), "")
    host = _host(address)
    excepted = any(host.endswith(each.strip()) for each in exceptions.split(",") if each.strip())
    if not name or is_local(address) or excepted:
        return ""
    return f"; the call goes through the proxy {os.environ[name]} ({name}), except if no_proxy lists {host}"


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
