"""`python3 -m esd.services.runtime.probe HOST:PORT`: exits with 0 if the service there reports SERVING.

The health check of every container. It runs every few seconds, so it imports nothing but gRPC; for a service with TLS
it uses the service's own certificates, from the container's ESD_..._TLS_... variables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc

from esd.services.runtime.proxies import proxy_options

DEADLINE_SECONDS = 3.0

# grpc.health.v1: the request for a server's overall health has no fields set, and the answer has one field, the status.
_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"


def problem(address: str) -> str:
    """Returns the reason why the service at `host:port` is not healthy; empty if it is."""
    with _channel(address) as channel:
        try:
            answer = channel.unary_unary(_CHECK, None, None)(b"", timeout=DEADLINE_SECONDS)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return "" if answer == _SERVING else "not serving"


def main() -> None:
    """Prints the reason why a service is not healthy, so that `docker inspect` shows it."""
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m esd.services.runtime.probe HOST:PORT")
    reason = problem(sys.argv[1])
    if reason:
        sys.exit(f"{sys.argv[1]}: {reason}")


def _channel(address: str) -> grpc.Channel:
    options = proxy_options(address)
    certificate, key, authority = (_file(f"_TLS_{part}") for part in ("CERTIFICATE", "KEY", "CA"))
    if certificate is None:
        return grpc.insecure_channel(address, options)
    credentials = grpc.ssl_channel_credentials(authority or certificate, key, certificate)
    return grpc.secure_channel(address, credentials, options)


def _file(suffix: str) -> bytes | None:
    """Returns the content of the file that the service's variable with this ending names; None if it is not set."""
    paths = [path for name, path in os.environ.items() if name.startswith("ESD_") and name.endswith(suffix) and path]
    return Path(paths[0]).read_bytes() if paths else None


if __name__ == "__main__":
    main()
