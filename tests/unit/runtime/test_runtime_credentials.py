"""Mistakes in the files of certificates, keys and tokens are found at the start, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import ClientSettings, SettingsError, load
from tests.support.certificates import Certificates


def test_plaintext_is_the_default() -> None:
    assert Credentials.read(ClientSettings()) == PLAINTEXT
    assert PLAINTEXT.for_channel() is None
    assert PLAINTEXT.for_server(ask_clients=False) is None


def test_all_missing_files_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_CLIENT_TLS_CA", "/nowhere/ca.crt")
    monkeypatch.setenv("ESD_CLIENT_TOKEN_FILE", "/nowhere/token")
    with pytest.raises(SettingsError) as caught:
        load(ClientSettings)
    assert "ESD_CLIENT_TLS_CA=/nowhere/ca.crt: No such file or directory" in str(caught.value)
    assert "ESD_CLIENT_TOKEN_FILE=/nowhere/token: No such file or directory" in str(caught.value)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"tls_certificate": "client/tls.crt"},
            r"_TLS_CERTIFICATE and ESD_CLIENT_TLS_KEY must be set together",
        ),
        ({"tls_key": "client/tls.key"}, r"must be set together"),
        (
            {"tls_certificate": "client/tls.crt", "tls_key": "service/tls.key"},
            r"client/tls\.crt and .*service/tls\.key: .*MISMATCH",
        ),
        ({"tls_certificate": "client/tls.key", "tls_key": "client/tls.crt"}, r"not a certificate and its key in PEM"),
        ({"tls_ca": "client/token"}, r"ESD_CLIENT_TLS_CA=.*token: no certificates in PEM"),
        ({"token_file": "client/token"}, r"ESD_CLIENT_TOKEN_FILE is set without ESD_CLIENT_TLS_CA, .* in the clear"),
        ({"tls_ca": "client/ca.crt", "token_file": "empty"}, r"ESD_CLIENT_TOKEN_FILE=.*empty: the file is empty"),
    ],
)
def test_what_does_not_fit_together_is_named(files: dict[str, str], text: str, certificates: Certificates) -> None:
    (certificates.directory / "empty").write_text("\n")
    with pytest.raises(SettingsError, match=text) as caught:
        Credentials.read(ClientSettings(**{name: certificates.directory / file for name, file in files.items()}))
    assert not any(secret in str(caught.value) for secret in certificates.secrets())


def test_secrets_do_not_show(certificates: Certificates) -> None:
    settings = ClientSettings(**certificates.of("client", token=True))
    credentials = Credentials.read(settings)
    assert credentials.token == "open-sesame-4711"
    shown = f"{settings!r} {settings} {credentials!r} {credentials}"
    assert not any(secret in shown for secret in certificates.secrets())


def test_the_script_keeps_what_is_there(tmp_path: Path) -> None:
    def files() -> dict[str, bytes]:
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.glob("*/*")}

    first = Certificates.make(tmp_path, "a")
    before = files()
    Certificates.make(tmp_path, "a", "b,10.0.0.1")
    after = files()
    assert set(after) - set(before) == {"b/ca.crt", "b/tls.crt", "b/tls.key", "b/token"}
    assert all(after[name] == content for name, content in before.items())
    Credentials.read(ClientSettings(**first.of("b")))
    for name in ("b", "b/tls.key", "b/token", "authority", "authority/ca.key"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
