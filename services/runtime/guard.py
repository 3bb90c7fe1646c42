"""Who may call: by the name in the peer's certificate, and by the token that the call carries."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Any

from services.domain.errors import PermissionDenied, Unauthenticated

_TOKEN_KEY = "authorization"  # noqa: S105 - the name of the metadata, as in RFC 6750
_NAMES = ("x509_common_name", "x509_subject_alternative_name")  # in gRPC's authentication context

# Orchestrators ask for health without a token, and the answer says nothing else.
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)


class Guard:
    """Decides whether a call may go on.

    Args:
        token: that calls must carry; None for any.
        client_names: of which a peer's certificate must have one; None for any.
    """

    def __init__(self, token: str | None = None, client_names: frozenset[str] | None = None) -> None:
        self._token = token
        self._names = client_names

    def check(self, method: str, peer: Mapping[str, Iterable[bytes]], metadata: Iterable[Any]) -> None:
        """Lets a call go on, or raises.

        Args:
            method: its full name.
            peer: gRPC's authentication context, the certificate's names in it already verified.
            metadata: (key, value) pairs that came with the call.

        Raises:
            PermissionDenied: the peer's certificate is good, but of nobody who may call.
            Unauthenticated: the token is missing or wrong.
        """
        if method.startswith(_OPEN_SERVICES):
            return
        if self._names is not None:
            names = {name.decode() for key in _NAMES for name in peer.get(key, ())}
            if not names & self._names:
                raise PermissionDenied(
                    f"the certificate of {', '.join(sorted(names)) or 'nobody'} is not among those that may call; "
                    "add the name to tls_clients of the service (ESD_<SERVICE>_TLS_CLIENTS)"
                )
        if self._token is not None:
            expected = f"Bearer {self._token}".encode()
            carried = [str(value).encode() for key, value in metadata if key == _TOKEN_KEY]
            # compare_digest takes the same time for all, so that nobody learns the token byte by byte.
            if not any(hmac.compare_digest(value, expected) for value in carried):
                raise Unauthenticated(
                    f"the call carries {'a wrong' if carried else 'no'} token; give the caller the same token_file as "
                    "the service (ESD_<SERVICE>_TOKEN_FILE, ESD_CLIENT_TOKEN_FILE)"
                )


def client_names(listed: str) -> frozenset[str] | None:
    """Returns the names in the setting `tls_clients`; None when any name will do, or none is asked for."""
    names = frozenset(name.strip() for name in listed.split(",") if name.strip())
    return None if not names or "*" in names else names
