"""A real Redis server that speaks TLS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from testbed.free_port import free_port
from testbed.redis_server import RedisServer
from tests.support.certificates import Certificates


@contextlib.contextmanager
def encrypted_redis_server(
    directory: Path, certificates: Certificates, password: str, *more: str
) -> Iterator[RedisServer]:
    """A server that takes only TLS connections with a certificate and a password, unless options in `more` differ."""
    port = free_port()
    files = certificates.of("redis")
    tls = {"cert-file": files["tls_certificate"], "key-file": files["tls_key"], "ca-cert-file": files["tls_ca"]}
    options = [item for name, file in tls.items() for item in (f"--tls-{name}", str(file))]
    names = {"--cert": "cert-file", "--key": "key-file", "--cacert": "ca-cert-file"}
    client = ("--tls", *(item for option, name in names.items() for item in (option, str(tls[name]))))
    server = RedisServer(
        directory,
        ("--port", "0", "--tls-port", str(port), *options, "--requirepass", password, *more),
        port,
        (*client, "--no-auth-warning", "-a", password),
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()
