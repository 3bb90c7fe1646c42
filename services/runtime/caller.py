"""The caller of the present RPC, for handlers that distinguish callers."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from esd.services.runtime.roles import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an RPC.

    Attributes:
        identity: a description: the name in the certificate, else the token, else the machine. An object that was
            handed to one caller (a lease) is not valid for another.
        roles: the roles of the caller; every role if the service checks no credentials.
        proven: whether a certificate or token proves the identity. A machine is an address, which may change.
    """

    identity: str
    roles: frozenset[Role]
    proven: bool = False


_THIS_PROCESS = Caller("this process", frozenset(Role))

_present: ContextVar[Caller] = ContextVar("caller", default=_THIS_PROCESS)


def present_caller() -> Caller:
    """Returns the caller of the RPC that the current task serves; outside of RPCs, this process itself."""
    return _present.get()


def bind_caller(caller: Caller) -> None:
    """Records the caller of the RPC that the current task serves. The record ends with the task, one per call."""
    _present.set(caller)
