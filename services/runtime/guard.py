"""Who may call: by the name in the peer's certificate, and by the token that the call carries; and how many at a time.

All of it is decided before a message of the call is read, so that a peer that may not call takes no memory.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from services.domain.errors import Overloaded, PermissionDenied, Unauthenticated

_TOKEN_KEY = "authorization"  # noqa: S105 - the name of the metadata, as in RFC 6750
_NAMES = ("x509_common_name", "x509_subject_alternative_name")  # in gRPC's authentication context

# Orchestrators ask for health without a token, and the answer says nothing else. So anybody can open such calls, and
# they have limits of their own, by machine and in total, that leave the places of the other calls alone. A watch lasts
# as long as its peer likes; a check is over as soon as its request is there, for which it has HEALTH_REQUEST_SECONDS.
_HEALTH = "/grpc.health.v1.Health/"
HEALTH_REQUEST_SECONDS = 5.0
HEALTH_CALLS_BY_PEER = 8
_HEALTH_CALLS = 256


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
        if is_health(method):
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


class Places:
    """The calls that are served at a time: more are refused, and may be made again later.

    Args:
        calls: the most calls, those for health apart.
        knob: the setting that raises the limit, for the error.
    """

    def __init__(self, calls: int, knob: str) -> None:
        self._calls = calls
        self._knob = knob
        self._taken = 0
        self._health_calls: Counter[str] = Counter()  # by method and machine

    def take(self, method: str, peer: str) -> None:
        """Gives a call a place; `leave`, with the same arguments, gives it back.

        Args:
            method: its full name.
            peer: its address as gRPC writes it, such as `ipv4:10.0.0.7:41234`.

        Raises:
            Overloaded: there is none left.
        """
        if is_health(method):
            self._take_for_health(method, peer)
        elif self._taken >= self._calls:
            raise Overloaded(f"{self._taken} calls are being served, and the limit is {self._knob}={self._calls}")
        else:
            self._taken += 1

    def leave(self, method: str, peer: str) -> None:
        """Takes the place of a call back."""
        if is_health(method):
            self._health_calls[f"{method} {machine_of(peer)}"] -= 1
            self._health_calls += Counter()  # forgets machines without calls
        else:
            self._taken -= 1

    def _take_for_health(self, method: str, peer: str) -> None:
        machine = f"{method} {machine_of(peer)}"
        if self._health_calls[machine] >= HEALTH_CALLS_BY_PEER or self._health_calls.total() >= _HEALTH_CALLS:
            raise Overloaded(
                f"too many calls of {method} are open: {HEALTH_CALLS_BY_PEER} from one machine and {_HEALTH_CALLS} "
                "in all are served at a time; end some of them"
            )
        self._health_calls[machine] += 1


def is_health(method: str) -> bool:
    """Tells whether a method, by its full name, is one of the health service."""
    return method.startswith(_HEALTH)


def machine_of(peer: str) -> str:
    """Returns the machine in an address as gRPC writes it: `ipv4:10.0.0.7` for `ipv4:10.0.0.7:41234`."""
    return peer.rpartition(":")[0]


def client_names(listed: str) -> frozenset[str] | None:
    """Returns the names in the setting `tls_clients`; None when any name will do, or none is asked for."""
    names = frozenset(name.strip() for name in listed.split(",") if name.strip())
    return None if not names or "*" in names else names
