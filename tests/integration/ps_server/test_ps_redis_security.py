"""A Redis that speaks TLS only and asks for a certificate and a password."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings, SettingsError
from testbed.redis_server import RedisServer
from tests.support.certificates import Certificates
from tests.support.frames import row_push
from tests.support.ps_client import Client
from tests.support.redis_encrypted import encrypted_redis_server

PASSWORD = "sesame-0815"


@pytest.fixture
def redis(tmp_path: Path, certificates: Certificates) -> Iterator[RedisServer]:
    with encrypted_redis_server(tmp_path, certificates, PASSWORD) as server:
        yield server


@pytest.fixture
def settings(redis: RedisServer, tmp_path: Path, certificates: Certificates) -> dict[str, Any]:
    """Of a parameter server that Redis lets in."""
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    return {
        "store": f"rediss://{redis.address}/0",
        "store_password_file": password,
        "store_tls_ca": certificates.authority,
        "metrics_port": None,
        **certificates.of("service"),
    }


async def test_rows_are_stored(settings: dict[str, Any], redis: RedisServer, certificates: Certificates) -> None:
    trusting = Credentials.read(ClientSettings(tls_ca=certificates.authority))
    async with (
        parameter_server(ParameterServerSettings(**settings)) as server,
        Client(server.address, credentials=trusting) as client,
    ):
        await client.create_table()
        await client.send(row_push(np.arange(100), 4, 1.0))
        described = await client.describe()
    assert described.tables[0].rows == 100
    assert PASSWORD not in str(described)
    assert "esd:tables" in redis.cli("keys", "*")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"store_password_file": None}, FailedPrecondition, "refuses our user or password.*STORE_PASSWORD_FILE"),
        ({"store_tls_ca": None}, FailedPrecondition, "the certificate of Redis.*ESD_PS_STORE_TLS_CA"),
        ({"tls_certificate": None, "tls_key": None}, Unavailable, "out of reach"),
    ],
)
async def test_what_is_missing_is_named(
    settings: dict[str, Any], change: dict[str, None], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        async with parameter_server(ParameterServerSettings(**(settings | change))):
            raise AssertionError("it started")
    assert PASSWORD not in str(caught.value)


async def test_a_password_that_is_no_text_stays_in_its_file(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes("pässword-1".encode("latin-1"))
    with pytest.raises(
        SettingsError, match=r"ESD_PS_STORE_PASSWORD_FILE=.*: the file holds no password in UTF-8"
    ) as caught:
        async with parameter_server(ParameterServerSettings(**settings)):
            raise AssertionError("it started")
    assert "ssword-1" not in "".join(traceback.format_exception(caught.value))


async def test_a_wrong_password_is_not_repeated_to_anyone(settings: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "password").write_text("another-secret")
    with pytest.raises(FailedPrecondition, match="refuses our user or password") as caught:
        async with parameter_server(ParameterServerSettings(**settings)):
            raise AssertionError("it started")
    assert "another-secret" not in str(caught.value)
