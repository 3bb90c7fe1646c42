"""The credentials of a log's reader, in files: a password, a certificate, and the authorities that it trusts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from esd.services.domain.errors import InvalidArgument

PASSWORD_FILE = "ESD_SOURCE_PASSWORD_FILE"  # noqa: S105 - the name of a variable
CA_FILE = "ESD_SOURCE_CA_FILE"
CERTIFICATE_FILE = "ESD_SOURCE_CERTIFICATE_FILE"
KEY_FILE = "ESD_SOURCE_KEY_FILE"


@dataclass(frozen=True, slots=True)
class SourceCredentials:
    """The credentials of a reader.

    Attributes:
        password: of the user in the address; None: there is none.
        authorities: PEM file of the authorities that the server's certificate is checked by; None: the system's.
        certificate: PEM file of the reader's certificate; None: it has none.
        key: PEM file of its key.
    """

    password: str | None
    authorities: str | None
    certificate: str | None
    key: str | None

    @classmethod
    def load(cls, *, encrypted: bool) -> SourceCredentials:
        """Reads the credentials that the environment names.

        Args:
            encrypted: whether the connection is by TLS; certificates count only then.

        Raises:
            InvalidArgument: a file cannot be read, or a certificate or its key is missing.
        """
        password = _password(os.environ.get("ESD_SOURCE_PASSWORD_FILE"))
        if not encrypted:
            return cls(password, None, None, None)
        authorities = _readable(CA_FILE, os.environ.get("ESD_SOURCE_CA_FILE"))
        certificate = _readable(CERTIFICATE_FILE, os.environ.get("ESD_SOURCE_CERTIFICATE_FILE"))
        key = _readable(KEY_FILE, os.environ.get("ESD_SOURCE_KEY_FILE"))
        if (certificate is None) != (key is None):
            raise InvalidArgument(f"a certificate and its key belong together: set {CERTIFICATE_FILE} and {KEY_FILE}")
        return cls(password, authorities, certificate, key)


def _password(file: str | None) -> str | None:
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{PASSWORD_FILE}={file}: the file holds no password in UTF-8: {error}") from None


def _readable(variable: str, file: str | None) -> str | None:
    if not file:
        return None
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{variable}={file}: the file cannot be read: {error}") from None
    return file
