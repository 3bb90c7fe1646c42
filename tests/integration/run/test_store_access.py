"""The services of `esd train` reach a Redis with TLS and a password, and no command line holds the password."""

from __future__ import annotations

from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.services import ServiceFailed
from tests.support.certificates import Certificates
from tests.support.redis_encrypted import encrypted_redis_server

PASSWORD = "sesame-0815"


def command_line(process: int) -> bytes:
    """The part of a process that all users of the machine can read."""
    return Path(f"/proc/{process}/cmdline").read_bytes()


async def command_line_of_a_server(store: str, logs: Path) -> bytes:
    """Starts the services for a store, and returns how its parameter server was called."""
    async with LocalServices(shards=1, store=store, worker_links=[], cache_rows=[], logs=logs) as cluster:
        return command_line(cluster.parameter_servers[0].process.pid)


async def test_password_and_authority_of_redis_are_passed_on(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, cold_python: None
) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    with encrypted_redis_server(tmp_path, certificates, PASSWORD, "--tls-auth-clients", "no") as redis:
        store = f"rediss://{redis.address}/0"
        monkeypatch.setenv("ESD_PS_STORE_TLS_CA", str(certificates.authority))
        with pytest.raises(ServiceFailed, match="ESD_PS_STORE_PASSWORD_FILE"):
            await command_line_of_a_server(store, tmp_path)

        monkeypatch.setenv("ESD_PS_STORE_PASSWORD_FILE", str(password))
        command = await command_line_of_a_server(store, tmp_path)
    assert b"esd.ps_server" in command
    assert PASSWORD.encode() not in command
