"""The credentials of a process towards its peers: TLS certificates, and the token that its calls carry.

One set of credentials serves a process as a server and as a client. Secrets come from files, and no message of this
module contains one.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.roles import Token, read_tokens
from esd.services.runtime.settings import ClientSettings, PeerSettings, SettingsError, load


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of one process, and its demands on its callers.

    Attributes:
        authority: PEM of the certificate authorities that peers' certificates are checked against; with it, channels to
            other services are encrypted.
        certificate: PEM of this process's own certificate and of the intermediate ones; with it, a server encrypts, and
            a client can prove its identity.
        key: PEM of its private key.
        token: sent with every call, over encrypted channels only.
        server_name: a name that servers' certificates must have; empty: the host of each server's address.
        accepted: the tokens of which a server requires one with every call; empty: none is required.

    Example:
        >>> esd.Credentials.load().token is None  # ESD_CLIENT_TLS_CA, ESD_CLIENT_TOKEN_FILE and so on name files
        True
    """

    authority: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    server_name: str = ""
    accepted: tuple[Token, ...] = ()

    @classmethod
    def read(cls, settings: PeerSettings) -> Self:
        """Reads the files that the settings name.

        Raises:
            SettingsError: a file is missing or malformed, certificate and key do not match, a token would be sent
                without encryption, or the file of a client has several tokens. The message names the variables.
        """
        _check_pairs(settings)
        _check_contents(settings)
        accepted = _accepted_tokens(settings)
        authority, certificate, key = (
            path.read_bytes() if path else None
            for path in (settings.tls_ca, settings.tls_certificate, settings.tls_key)
        )
        return cls(authority, certificate, key, _own_token(settings, accepted), accepted=accepted)

    @classmethod
    def load(
        cls,
        *,
        tls_ca: Path | str | None = None,
        tls_certificate: Path | str | None = None,
        tls_key: Path | str | None = None,
        token_file: Path | str | None = None,
    ) -> Self:
        """Reads a user's credentials for services. A file that is not given comes from ESD_CLIENT_TLS_CA and so on.

        Args:
            tls_ca: PEM file of the certificate authorities that services are checked against.
            tls_certificate: PEM file of the user's certificate.
            tls_key: PEM file of its private key.
            token_file: file of the token that services require.

        Raises:
            SettingsError: a file is missing or malformed, certificate and key do not match, a token would be sent
                without encryption, or the file has several tokens. The message names the variables.
        """
        given = load(
            ClientSettings,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            token_file=token_file,
        )
        return cls.read(given)

    def for_channel(self) -> grpc.ChannelCredentials | None:
        """Returns the credentials of a channel; None for plaintext."""
        if self.authority is None:
            return None
        tls = grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)
        if self.token is None:
            return tls
        return grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(self.token))

    def for_server(self, *, ask_clients: bool) -> grpc.ServerCredentials | None:
        """Returns a server's credentials; None for plaintext. `ask_clients` refuses connections without certificate."""
        if self.certificate is None or self.key is None:
            return None
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)], self.authority if ask_clients else None, require_client_auth=ask_clients
        )


PLAINTEXT = Credentials()


def _check_pairs(settings: PeerSettings) -> None:
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise SettingsError(
            f"{settings.variable('tls_certificate')} and {settings.variable('tls_key')} must be set together"
        )
    if settings.token_file and not settings.tls_ca:
        raise SettingsError(
            f"{settings.variable('token_file')} is set without {settings.variable('tls_ca')}, and a token is never "
            "sent in the clear"
        )


def _accepted_tokens(settings: PeerSettings) -> tuple[Token, ...]:
    if settings.token_file is None:
        return ()
    try:
        # Invalid bytes become a character that no token may have, so that the error names the line and does not show
        # it.
        return read_tokens(settings.token_file.read_text(encoding="utf-8", errors="replace"))
    except InvalidArgument as error:
        raise SettingsError(f"{settings.variable('token_file')}={settings.token_file}: {error}") from error


def _own_token(settings: PeerSettings, accepted: Sequence[Token]) -> str | None:
    """Returns the token that the process sends: the only one, or the first of its role; None if it has none."""
    if isinstance(settings, ClientSettings) and len(accepted) > 1:
        raise SettingsError(
            f"{settings.variable('token_file')}={settings.token_file}: this is a service's file, with {len(accepted)} "
            "tokens; a caller has a file with its own token alone"
        )
    if isinstance(settings, ClientSettings):
        return next((token.secret for token in accepted), None)
    return next((token.secret for token in accepted if token.role in (None, settings.role)), None)


def _check_contents(settings: PeerSettings) -> None:
    """Checks the files with OpenSSL: gRPC itself would fail without a reason, or only at the first call."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.tls_ca:
        try:
            context.load_verify_locations(settings.tls_ca)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(
                f"{settings.variable('tls_ca')}={settings.tls_ca}: no certificates in PEM ({_reason(error)})"
            ) from error
    if settings.tls_certificate:
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key, password="")
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(
                f"{settings.variable('tls_certificate')}={settings.tls_certificate} and "
                f"{settings.variable('tls_key')}={settings.tls_key}: not a certificate and its key in PEM "
                f"({_reason(error)})"
            ) from error


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
