"""`python3 -m esd.services.runtime.probe HOST:PORT`: exits with 0 if the service there says that it is serving.

The health check of every container. It runs every few seconds, so it imports gRPC and nothing else: the certificates
that it needs for a service with TLS are the service's own, from the container's ESD_..._TLS_... variables.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc

DEADLINE_SECONDS = 3.0

# grpc.health.v1: the request for a server's overall health has no fields set, and the answer has one, the status.
_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"


def problem(address: str) -> str:
    """Why the service at `host:port` is not healthy; empty if it is."""
    with _channel(address) as channel:
        try:
            answer = channel.unary_unary(_CHECK, None, None)(b"", timeout=DEADLINE_SECONDS)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return "" if answer == _SERVING else "not serving"


def main() -> None:
    """Prints why a service is not healthy, if so, where `docker inspect` shows it."""
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m esd.services.runtime.probe HOST:PORT")
    reason = problem(sys.argv[1])
    if reason:
        sys.exit(f"{sys.argv[1]}: {reason}")


def _channel(address: str) -> grpc.Channel:
    certificate, key, authority = (_file(f"_TLS_{part}") for part in ("CERTIFICATE", "KEY", "CA"))
    if certificate is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority or certificate, key, certificate))


def _file(suffix: str) -> bytes | None:
    """Returns what the file holds that the service's variable with this ending names."""
    paths = [path for name, path in os.environ.items() if name.startswith("ESD_") and name.endswith(suffix) and path]
    return Path(paths[0]).read_bytes() if paths else None


if __name__ == "__main__":
    main()
