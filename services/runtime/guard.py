"""Access control: by the roles of the names in the peer's certificate, and of the token that a call carries.

A call is admitted or refused before any message of it is read, so that a peer without access uses no memory.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import grpc

from esd.services.domain.errors import PermissionDenied, Unauthenticated
from esd.services.runtime.call_limits import is_health, machine_of
from esd.services.runtime.caller import Caller
from esd.services.runtime.roles import ROLES_BY_RPC, Role, RolesByName, Token

_TOKEN_KEY = "authorization"  # noqa: S105 - the name of the metadata, as in RFC 6750
_COMMON_NAME, _OTHER_NAMES = "x509_common_name", "x509_subject_alternative_name"  # in gRPC's authentication context

_EVERY_ROLE = frozenset(Role)

_KNOWN_CALLERS = 1024  # callers whose roles and identities are cached

Context = grpc.aio.ServicerContext[Any, Any]
Metadata = Sequence[Any]  # (key, value)
Admit = Callable[[Context, Metadata], Caller]
AdmitByEvidence = Callable[[str, tuple[bytes, ...], Sequence[str]], Caller]


class Guard:
    """Admits or refuses calls.

    Args:
        tokens: the accepted tokens, of which every call must carry one; none: no token is required.
        clients: the roles of the names in certificates; a peer's certificate must have a name among them. None: peers
            need no certificate.
    """

    def __init__(self, tokens: Sequence[Token] = (), clients: RolesByName | None = None) -> None:
        self._tokens = [(f"Bearer {token.secret}".encode(), token) for token in tokens]
        self._clients = clients

    @property
    def is_open(self) -> bool:
        """Whether every caller may make every call."""
        return not self._tokens and self._clients is None

    @property
    def knows_roles(self) -> bool:
        """Whether it distinguishes callers by their roles."""
        return self._clients is not None or any(token.role for _, token in self._tokens)

    def of(self, method: str) -> Admit:
        """Returns the function that admits the calls of a method, given by its full name.

        The function takes the context and the metadata of a call, and returns the caller. It raises as the
        function of `by_evidence` does.
        """
        admit = self.by_evidence(method)
        return lambda context, metadata: admit(
            context.peer(), self._names_of(context), [str(value) for key, value in metadata if key == _TOKEN_KEY]
        )

    def by_evidence(self, method: str) -> AdmitByEvidence:
        """Returns the function that admits the calls of a method over any protocol.

        The function takes the address of the peer, the names in its certificate, and the values of its header
        `authorization`, and returns the caller. It raises:

        - Unauthenticated: the token is missing or wrong.
        - PermissionDenied: the caller is known, but has no role that may make this call.
        """
        if self.is_open or is_health(method):
            return lambda peer, _names, _values: _from_machine(peer)
        allowed = ROLES_BY_RPC.get(method, frozenset())

        @lru_cache(_KNOWN_CALLERS)  # the result depends only on the proven names and token
        def decide(names: tuple[bytes, ...], token: Token | None) -> Caller:
            roles = self._clients.of(name.decode() for name in names) if self._clients is not None else _EVERY_ROLE
            if token is not None and token.role is not None:
                roles &= {token.role}
            identity = f"the certificate {names[0].decode()}" if names else token.name if token else "nobody"
            if not roles & allowed:
                _refuse(method, allowed, identity, roles)
            return Caller(identity, roles, proven=True)

        return lambda _peer, names, values: decide(names, self._token_of(values))

    def _names_of(self, context: Context) -> tuple[bytes, ...]:
        """Returns the names in the peer's certificate, which gRPC has verified; the common name first."""
        if self._clients is None:
            return ()
        shown = context.auth_context()
        return (*shown.get(_COMMON_NAME, ()), *shown.get(_OTHER_NAMES, ()))

    def _token_of(self, values: Sequence[str]) -> Token | None:
        """Returns the token that a call carries; None if no token is required."""
        if not self._tokens:
            return None
        carried = [value.encode() for value in values]
        # compare_digest takes constant time, and all tokens are compared, so that no caller learns a token byte by
        # byte.
        found = [token for expected, token in self._tokens for value in carried if hmac.compare_digest(value, expected)]
        if not found:
            raise Unauthenticated(
                f"the call carries {'a wrong' if carried else 'no'} token; give the caller a token_file with a token "
                "of the service (ESD_<SERVICE>_TOKEN_FILE, ESD_CLIENT_TOKEN_FILE)"
            )
        return found[0]


@lru_cache(_KNOWN_CALLERS)
def _from_machine(peer: str) -> Caller:
    """Returns the caller at an address, if nothing else is known of it."""
    return Caller(f"the machine {machine_of(peer)}", _EVERY_ROLE)


def _refuse(method: str, allowed: frozenset[Role], identity: str, roles: frozenset[Role]) -> None:
    """Raises PermissionDenied, with the roles that are missing."""
    if not roles:
        raise PermissionDenied(
            f"{identity} gives its bearer no role here; name it with one in tls_clients of the service "
            "(ESD_<SERVICE>_TLS_CLIENTS)"
        )
    raise PermissionDenied(
        f"{method.rpartition('/')[2]} is for the roles {', '.join(sorted(allowed))}, and {identity} is of "
        f"{', '.join(sorted(roles))}"
    )
